"""The step at which a metric was worst."""

import polars as pl

from ..metric import Metric


def worst_step(metric: Metric, steps: pl.DataFrame, gap: str) -> tuple[float | None, int | None]:
    """(value, step) where the metric lies furthest on its worse side; the earlier of two such steps.

    steps: a metric frame by step. (None, None) for a count, which is neither good nor bad, and where no value is known.
    """
    name = f"{gap}/{metric.name}"
    if name not in steps.columns or metric.kind == "count":
        return None, None
    known = steps.select("step", value=pl.col(name)).drop_nulls().drop_nans()
    if known.is_empty():
        return None, None
    value = pl.col("value")
    badness = {"above": value, "below": -value, "away": (value - metric.neutral).abs()}[metric.worse]
    row = known.sort(badness, "step", descending=[True, False]).row(0, named=True)
    return row["value"], row["step"]
