"""Merges statistics tables of parts of a run, ranks, steps or slices: sums add, maxima compete, log-sums add in log space."""

from collections.abc import Sequence
from functools import cache

import polars as pl

from .definitions.registry import STATISTICS
from .definitions.tail import SHAPES, TAILS, K
from .distribution import LEVELS, histogram_columns
from .metric import Statistic

KEYS = ("attempt", "step", "gap", "slice", "key")
LISTS: tuple[tuple[str, ...], ...] = (*map(histogram_columns, LEVELS), *((tail.name,) for tail in TAILS))
"""Groups of list columns that merge together: a histogram has four columns, a tail one."""
LONE = tuple(shape.column for shape in SHAPES.values())
"""Columns that do not merge: they are there as long as no two rows are merged."""


def merge(statistics: pl.DataFrame, by: Sequence[str]) -> pl.DataFrame:
    """One row per distinct value of `by` (any of KEYS), sorted by it; by = () gives one row.

    The result does not depend on the order or number of the parts. A statistic that is null in every row of a group stays
    null. The caller must not merge rows of different gaps, or rows of a slice with rows of slice `all`.
    """
    keyed = statistics if by else statistics.with_columns(_everything=pl.lit(0))
    keys = list(by) or ["_everything"]
    recorded = [statistic for statistic in STATISTICS if statistic.name in statistics.columns]
    if not keyed.select(keys).is_duplicated().any():  # aggregating 30,000 groups of one row each took four seconds
        columns = [*(statistic.name for statistic in recorded), *(name for names in LISTS for name in names), *LONE]
        alone = keyed.select(*keys, *(name for name in columns if name in keyed.columns))
        order = alone.select(keys).with_row_index("_row").sort(keys, nulls_last=True)["_row"]
        in_order = bool((order.cast(pl.Int64).diff().drop_nulls() == 1).all())
        return (alone if in_order else alone[order]).drop("_everything", strict=False)
    merged = keyed.group_by(keys).agg(_combined(statistic) for statistic in recorded)
    for names in LISTS:
        if names[0] in statistics.columns:
            merged = merged.join(_lists(keyed, keys, names), on=keys, how="left", nulls_equal=True)
    return merged.sort(keys, nulls_last=True).drop("_everything", strict=False)


def _lists(statistics: pl.DataFrame, keys: list[str], names: tuple[str, ...]) -> pl.DataFrame:
    """A histogram (four columns) or a tail (one) merged: the counts of a bucket add, and the K largest weights of tails stay."""
    filled = statistics.select(*keys, *names).filter(pl.col(names[0]).is_not_null())
    alone = filled.filter(pl.len().over(keys) == 1)
    several = filled.filter(pl.len().over(keys) > 1).explode(names).drop_nulls(names[0])
    if len(names) == 1:
        together = several.group_by(keys).agg(pl.col(names[0]).top_k(K).sort(descending=True))
    else:
        buckets, counts, *sums = names
        added = several.group_by([*keys, buckets]).agg(
            pl.col(counts).sum(), *(_logsumexp(pl.col(name)).alias(name) for name in sums)
        )
        together = added.sort(buckets).group_by(keys, maintain_order=True).agg(names)
    return pl.concat([alone, together.select(alone.columns)])


@cache
def _combined(statistic: Statistic) -> pl.Expr:
    """The merged value. It is built once: to build those of 140 statistics takes a quarter of the time of a merge."""
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
