"""total = mismatch + drift, step by step: mean log-ratios add on one token set; K3 and chi-squared do not."""

import numpy as np
import polars as pl

from ratioscope.record import GAPS

PARTS = ("mismatch", "drift")
WHOLE = "total"
EXACT = 1e-9
"""Largest residual, next to the sizes of the three, that float64 sums of float32 differences leave; a convention."""


def decomposition(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns step, total, mismatch, drift (mean log-ratios, nats/token), residual = total - mismatch - drift, and `holds`.

    frame: a metric frame by step. Steps without one of the three are left out. holds is false where the three were measured
    on different tokens: other minibatches, or tokens that only some of the gaps had to set aside.
    """
    names = {gap: f"{gap}/mean_log_ratio" for gap in GAPS}
    if any(name not in frame.columns for name in names.values()):
        return pl.DataFrame(
            schema={"step": pl.Int64, **dict.fromkeys(GAPS, pl.Float64), "residual": pl.Float64, "holds": pl.Boolean}
        )
    own = frame.select("step", **{gap: pl.col(name).cast(pl.Float64) for gap, name in names.items()})
    known = own.filter(pl.all_horizontal(pl.col(gap).is_finite() for gap in GAPS)).sort("step")
    values = {gap: known[gap].to_numpy() for gap in GAPS}
    residual = values[WHOLE] - sum(values[part] for part in PARTS)
    size = np.maximum.reduce([np.abs(each) for each in values.values()]) if len(known) else residual
    return known.with_columns(residual=pl.Series(residual), holds=pl.Series(np.abs(residual) <= EXACT * (1 + size)))
