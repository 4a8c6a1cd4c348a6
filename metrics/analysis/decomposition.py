"""total = mismatch + drift at each step. Mean log-ratios over the same tokens add up; K3 and chi-squared do not."""

import numpy as np
import polars as pl

from ratioscope.record import GAPS

PARTS = ("mismatch", "drift")
WHOLE = "total"
EXACT = 1e-9
"""Largest residual, relative to 1 plus the largest of the three, that is taken as rounding. A convention."""


def decomposition(frame: pl.DataFrame) -> pl.DataFrame:
    """One row per step that has all three gaps, with the columns

        step
        total, mismatch, drift            mean log-ratios, nats/token
        total_se, mismatch_se, drift_se   their standard errors; null if unknown
        tokens                            tokens of total; null if unknown
        residual                          total - mismatch - drift
        holds                             false if the three were measured on different tokens

    frame: a metric frame by step. The tokens differ if the gaps come from different minibatches, or if tokens were set aside
    in some of the gaps only.
    """
    means = {gap: f"{gap}/mean_log_ratio" for gap in GAPS}
    names = {**means, **{f"{gap}_se": f"{name}_se" for gap, name in means.items()}, "tokens": f"{WHOLE}/tokens"}
    if any(name not in frame.columns for name in means.values()):
        schema = {"step": pl.Int64, **dict.fromkeys([*names, "residual"], pl.Float64), "holds": pl.Boolean}
        return pl.DataFrame(schema=schema)
    here = {name: pl.col(name) if name in frame.columns else pl.lit(None) for name in names.values()}
    own = frame.select("step", **{column: here[name].cast(pl.Float64) for column, name in names.items()})
    rows = own.filter(pl.all_horizontal(pl.col(gap).is_finite() for gap in GAPS)).sort("step")
    values = {gap: rows[gap].to_numpy() for gap in GAPS}
    residual = values[WHOLE] - sum(values[part] for part in PARTS)
    size = np.maximum.reduce([np.abs(each) for each in values.values()]) if len(rows) else residual
    return rows.with_columns(residual=pl.Series(residual), holds=pl.Series(np.abs(residual) <= EXACT * (1 + size)))
