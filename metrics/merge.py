"""Merging statistics tables: parts of a run, ranks, steps, slices. Sums add, maxima compete, log-sums add in log space."""

from collections.abc import Sequence

import polars as pl

from .registry import STATISTICS
from .statistic import Statistic

KEYS = ("attempt", "step", "gap", "slice", "key")


def merge(statistics: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row per distinct value of `by` (any of KEYS), sorted by it. Any split, order or number of parts gives the same.

    A statistic that is null in every row of a group stays null. by = () gives one row. The caller sees to it that
    rows of different gaps, or of a slice and of `all`, do not meet.
    """
    known = [statistic for statistic in STATISTICS if statistic.name in statistics.columns]
    combined = [_combined(statistic) for statistic in known]
    if not by:
        return statistics.select(combined)
    return statistics.group_by(list(by)).agg(combined).sort(list(by), nulls_last=True)


def _combined(statistic: Statistic) -> pl.Expr:
    column = pl.col(statistic.name)
    if statistic.combine == "sum":
        total = column.sum()
    elif statistic.combine == "max":
        total = column.max()
    else:
        total = _logsumexp(column)
    return pl.when(column.is_not_null().any()).then(total).alias(statistic.name)


def _logsumexp(column: pl.Expr) -> pl.Expr:
    largest = column.max()
    anchor = pl.when(largest.is_finite()).then(largest).otherwise(0.0)
    return anchor + (column - anchor).exp().sum().log()
