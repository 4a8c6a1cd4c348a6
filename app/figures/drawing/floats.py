"""Columns of frames as the numbers that figures draw."""

import numpy as np
import polars as pl

from .scale import Floats


def floats(frame: pl.DataFrame, name: str) -> Floats:
    """The numbers of a column, NaN where they are null; all NaN where there is no such column."""
    if name not in frame.columns:
        return np.full(len(frame), np.nan)
    return frame[name].cast(pl.Float64).fill_null(np.nan).to_numpy()


def typical(values: Floats) -> float:
    """The median of those that are known; NaN where none is."""
    return float(np.nanmedian(values)) if np.isfinite(values).any() else np.nan
