"""Columns of frames as the numbers that figures draw."""

import numpy as np
import polars as pl

from ratioscope.arrays import Floats


def floats(frame: pl.DataFrame, name: str) -> Floats:
    """The numbers of a column; NaN for null; all NaN if the frame lacks the column."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def typical(values: Floats) -> float:
    """The median of the known values; NaN without one."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else np.nan
