"""total = mismatch + drift, step by step: mean log-ratios add on one token set; K3 and chi-squared do not."""

import numpy as np
import polars as pl

from ratioscope.record import GAPS

PARTS = ("mismatch", "drift")
WHOLE = "total"
EXACT = 1e-9
"""Largest residual, next to the sizes of the three, that float64 sums of float32 differences leave; a convention."""


def decomposition(frame: pl.DataFrame) -> pl.DataFrame:
    """Columns step; total, mismatch, drift (mean log-ratios, nats/token), each with its standard error `<gap>_se`; tokens, of the
    total; residual = total - mismatch - drift; and `holds`.

    frame: a metric frame by step. Steps without one of the three are left out; an error or a number of tokens that the frame
    lacks is null. holds is false where the three were measured on different tokens: other minibatches, or tokens that only some
    of the gaps had to set aside.
    """
    means = {gap: f"{gap}/mean_log_ratio" for gap in GAPS}
    names = {**means, **{f"{gap}_se": f"{name}_se" for gap, name in means.items()}, "tokens": f"{WHOLE}/tokens"}
    if any(name not in frame.columns for name in means.values()):
        schema = {"step": pl.Int64, **dict.fromkeys([*names, "residual"], pl.Float64), "holds": pl.Boolean}
        return pl.DataFrame(schema=schema)
    here = {name: pl.col(name) if name in frame.columns else pl.lit(None) for name in names.values()}
    own = frame.select("step", **{column: here[name].cast(pl.Float64) for column, name in names.items()})
    known = own.filter(pl.all_horizontal(pl.col(gap).is_finite() for gap in GAPS)).sort("step")
    values = {gap: known[gap].to_numpy() for gap in GAPS}
    residual = values[WHOLE] - sum(values[part] for part in PARTS)
    size = np.maximum.reduce([np.abs(each) for each in values.values()]) if len(known) else residual
    return known.with_columns(residual=pl.Series(residual), holds=pl.Series(np.abs(residual) <= EXACT * (1 + size)))
