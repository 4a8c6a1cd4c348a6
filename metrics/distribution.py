"""Distributions of log-ratios: sparse histograms on one fixed set of signed-log edges, with sums of w and w^2 per bucket.

The edges contain the logarithm of every threshold that a trainer publishes, so that at these the share clipped, the mass
removed and the effective sample size after truncation or masking are exact; in between they come as an interval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from .reduction import reduced

if TYPE_CHECKING:
    import polars as pl

Floats = npt.NDArray[np.float64]
Level = Literal["token", "sequence", "geometric"]
LEVELS: tuple[Level, ...] = ("token", "sequence", "geometric")

THRESHOLDS = (
    1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995,
    0.998, 0.999, 0.9995, 0.9997, 0.9998, 0.9999, 1.0001, 1.0002, 1.0003, 1.0004, 1.0005, 1.001, 1.002, 1.005, 1.01, 1.02, 1.03,
    1.05, 1.1, 1.15, 1.2, 1.25, 1.27, 1.28, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5, 8, 10, 20, 50, 100, 1000, 1e4,
)  # fmt: skip
"""Weights at which published corrections truncate, mask or veto, and their reciprocals' company."""


def _logarithm(threshold: float) -> float:
    """The float64 nearest to it: libraries differ in the last bit, and a bucket is the same on every machine."""
    return float(Decimal(threshold).ln())


_DECADES = tuple(m * 10.0**k for k in range(-9, 4) for m in ((1, 2, 5) if k > -5 else (1,)))
EDGES: Floats = np.unique(
    np.concatenate(([-x for x in _DECADES], _DECADES, [*map(_logarithm, THRESHOLDS)], [20.0, -20.0]))
)
"""Log-ratios between buckets, ascending; none is 0, so that equal policies fall inside a bucket."""
BUCKETS = len(EDGES) + 1
"""Bucket i holds EDGES[i - 1] <= x < EDGES[i]; the first reaches down to -inf, the last up to inf."""
PLAIN = 300.0
"""The square of exp of no more than this neither overflows nor underflows, so that its plain sums may be logged."""


@dataclass(frozen=True)
class Interval:
    """Where a quantity lies for sure. low == high where the threshold is one of the edges."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """Whether the histogram says it exactly."""
        return self.low == self.high


@dataclass(frozen=True)
class Histogram:
    """Counts and log-sums of weights of the occupied buckets, ascending by bucket."""

    buckets: npt.NDArray[np.int64]
    counts: npt.NDArray[np.int64]
    log_sum_weights: Floats
    log_sum_square_weights: Floats

    @property
    def low(self) -> Floats:
        """The smallest log-ratio of each bucket."""
        return np.concatenate(([-np.inf], EDGES))[self.buckets]

    @property
    def high(self) -> Floats:
        """The smallest log-ratio above each bucket."""
        return np.concatenate((EDGES, [np.inf]))[self.buckets]


def bucket_of(log_ratio: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """The bucket of each log-ratio; -inf lies in the first, NaN nowhere (do not ask)."""
    return np.searchsorted(EDGES, np.asarray(log_ratio, np.float64), side="right")


def histogram(log_ratio: npt.ArrayLike) -> Histogram:
    """The histogram of one set of log-ratios."""
    x = np.asarray(log_ratio, np.float64)
    table = bucket_table(bucket_of(x), x, BUCKETS)
    return Histogram(*table)


def bucket_table(
    cells: npt.NDArray[np.int64], log_ratio: Floats, count: int, times: Floats | None = None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[Any], Floats, Floats]:
    """(occupied cells, counts, log-sums of w, of w^2), for cells = group * BUCKETS + bucket below `count`.

    times: how often each element counts; None: once, and counts are whole numbers.
    """
    counts = np.bincount(cells, times, count)
    occupied = np.flatnonzero(counts)
    with np.errstate(divide="ignore"):
        if times is not None:
            logs = np.stack((log_ratio, 2 * log_ratio)) + np.log(times)
            sums = reduced(logs, cells, ("logsumexp", "logsumexp")).matrix
            return occupied, counts[occupied], sums[0], sums[1]
        if np.abs(log_ratio).max(initial=0.0) > PLAIN:
            sums = reduced(np.stack((log_ratio, 2 * log_ratio)), cells, ("logsumexp", "logsumexp")).matrix
        else:
            w = np.exp(log_ratio)
            sums = np.log(np.stack([np.bincount(cells, power, count)[occupied] for power in (w, w * w)]))
    return occupied, counts[occupied], sums[0], sums[1]


def from_row(row: Mapping[str, Sequence[float] | None], level: Level = "token") -> Histogram:
    """The histogram in a row of a statistics table; empty where none was kept."""
    parts = [row.get(name) or () for name in histogram_columns(level)]
    buckets, counts = (np.asarray(part, np.int64) for part in parts[:2])
    weights, squares = (np.asarray(part, np.float64) for part in parts[2:])
    return Histogram(buckets, counts, weights, squares)


def whole_histogram(distribution: "pl.DataFrame") -> Histogram:
    """The histogram of all rows of a distribution (see Run.distribution) together; exact, because counts and sums add."""
    codes = distribution["bucket"].to_numpy().astype(np.int64)
    names = ("count", "log_sum_weight", "log_sum_square_weight")
    matrix = np.stack([distribution[name].to_numpy().astype(np.float64) for name in names])
    with np.errstate(divide="ignore"):
        merged = reduced(matrix, codes, ("sum", "logsumexp", "logsumexp"))
    return Histogram(merged.codes, merged.matrix[0].astype(np.int64), merged.matrix[1], merged.matrix[2])


def histogram_columns(level: Level) -> tuple[str, str, str, str]:
    """Names of a level's list columns: buckets, counts, log-sums of weights, of squared weights."""
    return (
        f"{level}_buckets",
        f"{level}_counts",
        f"{level}_log_sum_weights",
        f"{level}_log_sum_square_weights",
    )


def quantile(part: Histogram, q: float) -> Interval:
    """The bucket of log-ratios that holds the q-quantile (the smallest x with at least q of the count at or below it)."""
    total = int(part.counts.sum())
    if not total:
        return Interval(np.nan, np.nan)
    place = int(np.searchsorted(np.cumsum(part.counts), q * total, side="left"))
    place = min(place, len(part.counts) - 1)
    return Interval(float(part.low[place]), float(part.high[place]))


def share_beyond(part: Histogram, amounts: npt.ArrayLike, log_ratios: Floats) -> Floats:
    """The share of the amounts beyond each log-ratio, shape (log_ratios,), in [0, 1]; 0 where all amounts are 0.

    Beyond a log-ratio >= 0 lie the buckets from it on; beyond one < 0 the buckets below it. The shares are exact where the
    log-ratios are edges. amounts: one per bucket, such as counts or `summed_weights`.
    """
    values = np.asarray(amounts, np.float64)
    total = float(values.sum()) or 1.0
    shares = [values[part.high <= x if x < 0 else part.low >= x].sum() / total for x in log_ratios]
    return np.array(shares, np.float64)


def summed_weights(part: Histogram) -> Floats:
    """The summed weight of each bucket, in units of the largest bucket's sum; all 0 where every weight is 0."""
    largest = float(part.log_sum_weights.max())
    return np.exp(part.log_sum_weights - largest) if np.isfinite(largest) else np.zeros(len(part.counts))


def median_size(buckets: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> tuple[float, float]:
    """(weighted median, largest) of abs(log-ratio) in nats, each bucket taken at its lower edge; at least one bucket.

    The first bucket, which has no lower edge, is taken at its upper edge.
    """
    sizes = np.abs(np.concatenate((EDGES[:1], EDGES))[buckets])
    order = np.argsort(sizes)
    middle = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
    return float(sizes[order][min(middle, len(sizes) - 1)]), float(sizes.max())
