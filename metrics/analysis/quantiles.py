"""Quantiles of log-ratios over steps, computed from histograms. The counts of neighbouring steps add, so no step is left out."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

NORMAL_95 = 1.959963984540054
FEWEST = 4
"""Pairs from which an interval is known: its width has n - 3 below a root."""
RANK_FACTOR = 1.06
"""Variance of the transformed rank correlation times (n - 3). Fieller, Hartley, Pearson 1957."""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation of pairs, taken for independent."""

    value: float
    """In [-1, 1]."""
    low: float
    """The lower end of its interval."""
    high: float
    """The ends of the 95% interval, by Fisher's transformation; NaN for fewer than four pairs."""
    pairs: int


def rank_correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> RankCorrelation | None:
    """The correlation of the pairs with two numbers. Equal values share their mean rank. None if a column has under two values.

    >>> rank_correlation([1, 2, 3], [1, 4, 9]).value
    1.0
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    known = ~(np.isnan(a) | np.isnan(b))
    first, second = (pl.Series(side[known]).rank().to_numpy().astype(np.float64) for side in (a, b))
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    value = float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))
    if len(first) < FEWEST:
        return RankCorrelation(value, math.nan, math.nan, len(first))
    middle = math.atanh(min(max(value, -1 + 1e-15), 1 - 1e-15))
    half = NORMAL_95 * math.sqrt(RANK_FACTOR / (len(first) - 3))
    return RankCorrelation(value, math.tanh(middle - half), math.tanh(middle + half), len(first))


QUANTILES = (0.05, 0.5, 0.95)


EXTREMES = {"min": "min_log_ratio", "max": "max_log_ratio"}
"""Column of `quantiles_over_steps` -> the metric it is read from."""


def extremes_over_steps(metrics: pl.DataFrame, gap: str) -> pl.DataFrame:
    """step, min, max of a gap's log-ratios, from a metric frame by step; no column if the frame has none of them."""
    columns = {name: f"{gap}/{metric}" for name, metric in EXTREMES.items()}
    if not set(columns.values()) <= set(metrics.columns):
        return pl.DataFrame()
    return metrics.select("step", **{name: pl.col(column) for name, column in columns.items()})


def quantiles_over_steps(
    distribution: pl.DataFrame, extremes: pl.DataFrame, quantiles: Sequence[float] = QUANTILES, *, columns: int = 250
) -> pl.DataFrame:
    """One row per group of neighbouring steps: `first`, `last`, `steps` (their number), `count`, `min`, `p5` ..., `max` (nats).

    distribution: step, low, high, count per occupied bucket, as Run.distribution returns them. extremes: step, min, max: the
    smallest and largest log-ratio of each step. columns: the most rows. A quantile is interpolated within its bucket, as if
    the counts were spread evenly; in a bucket without an end it is the finite end.
    """
    steps = distribution.select(pl.col("step").unique().sort()).with_row_index("row")
    each = -(-len(steps) // columns) if len(steps) else 1
    placed = steps.with_columns(column=pl.col("row") // each).drop("row")
    pooled = (
        distribution.join(placed, on="step")
        .group_by("column", "low", "high")
        .agg(pl.col("count").sum(), first=pl.col("step").min(), last=pl.col("step").max())
        .filter(pl.col("count") > 0)
        .sort("column", "low")
        .with_columns(
            below=pl.col("count").cum_sum().over("column") - pl.col("count"), total=pl.col("count").sum().over("column")
        )
    )
    rows = pooled.group_by("column", maintain_order=True).agg(
        pl.col("first").min(), pl.col("last").max(), count=pl.col("total").first()
    )
    for q in quantiles:
        rows = rows.join(_quantile(pooled, q), on="column", how="left", maintain_order="left")
    ends = extremes.join(placed, on="step").group_by("column").agg(pl.len().alias("steps"), *_ENDS)
    return rows.join(ends, on="column", how="left", maintain_order="left").drop("column")


_ENDS = (pl.col("min").min(), pl.col("max").max())


def name_of(quantile: float) -> str:
    """The name of the column of a quantile.

    >>> name_of(0.05), name_of(0.5)
    ('p5', 'p50')
    """
    return f"p{100 * quantile:g}"


def _quantile(pooled: pl.DataFrame, q: float) -> pl.DataFrame:
    rank = q * pl.col("total")
    inside = ((rank - pl.col("below")) / pl.col("count")).clip(0.0, 1.0)
    low, high = pl.col("low"), pl.col("high")
    spread = (low + (high - low) * inside).clip(low, high)  # rounding may leave the bucket
    place = pl.when(low.is_infinite()).then(high).when(high.is_infinite()).then(low).otherwise(spread)
    return (
        pooled.filter(pl.col("below") + pl.col("count") >= rank)
        .group_by("column", maintain_order=True)
        .agg(place.first().alias(name_of(q)))
    )
