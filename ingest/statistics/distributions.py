"""Distributions of log-ratios by step, from the histograms in the statistics."""

import numpy as np
import polars as pl

from ratioscope.metrics.distribution import EDGES, Level, histogram_columns

_COLUMNS = ("bucket", "count", "log_sum_weight", "log_sum_square_weight")


def distribution_frame(statistics: pl.DataFrame, level: Level, gap: str) -> pl.DataFrame:
    """One row per step and non-empty bucket: low <= x < high in nats, its count, log(sum of w) and log(sum of w^2)."""
    lists = histogram_columns(level)
    buckets = (
        statistics.filter(gap=gap)
        .select("step", *lists)
        .filter(pl.col(lists[0]).list.len() > 0)
        .explode(lists)
        .rename(dict(zip(lists, _COLUMNS, strict=True)))
    )
    place = buckets["bucket"].to_numpy()
    return buckets.with_columns(
        low=np.concatenate(([-np.inf], EDGES))[place], high=np.concatenate((EDGES, [np.inf]))[place]
    ).select("step", "bucket", "low", "high", *_COLUMNS[1:])
