"""Distributions of log-ratios: sparse histograms on fixed edges, with the sums of w and w^2 of each bucket.

The edges contain the logarithm of every threshold that a trainer publishes. The effect of such a threshold (share clipped,
mass removed, effective sample size) follows exactly from a histogram; for other thresholds it is an interval.
"""

from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Literal

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Floats, Integers

from .exponential import exp
from .pieces import totals
from .reduction import reduced

if TYPE_CHECKING:
    import polars as pl

Level = Literal["token", "sequence", "geometric"]
LEVELS: tuple[Level, ...] = ("token", "sequence", "geometric")

THRESHOLDS = (
    1e-4, 1e-3, 0.01, 0.05, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 2 / 3, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99, 0.995,
    0.998, 0.999, 0.9995, 0.9997, 0.9998, 0.9999, 1.0001, 1.0002, 1.0003, 1.0004, 1.0005, 1.001, 1.002, 1.005, 1.01, 1.02, 1.03,
    1.05, 1.1, 1.15, 1.2, 1.25, 1.27, 1.28, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.5, 3, 4, 5, 8, 10, 20, 50, 100, 1000, 1e4,
)  # fmt: skip
"""Weights at which published corrections truncate, mask or veto, with others between them."""


def _logarithm(threshold: float) -> float:
    """The float64 nearest to the exact logarithm. Math libraries differ in the last bit; buckets must not differ by machine."""
    return float(Decimal(threshold).ln())


_DECADES = tuple(m * 10.0**k for k in range(-9, 4) for m in ((1, 2, 5) if k > -5 else (1,)))
EDGES: Floats = np.unique(
    np.concatenate(([-x for x in _DECADES], _DECADES, [*map(_logarithm, THRESHOLDS)], [20.0, -20.0]))
)
"""Log-ratios between buckets in nats, ascending. None is 0, so that equal policies lie inside a bucket."""
BUCKETS = len(EDGES) + 1
"""Bucket i contains EDGES[i - 1] <= x < EDGES[i]; the first begins at -inf, the last ends at inf."""
LOOKED_UP = 1000
"""From this number on, buckets are looked up by the first bits of a log-ratio. A convention: the table takes a millisecond."""
REST = 48
"""The bits of a float64 that follow its sign, its exponent and the first four digits of its fraction."""
UPPER: Floats = np.append(EDGES, np.inf)
"""The upper edge of each bucket."""
PLAIN = 300.0
"""If no abs(x) exceeds this, exp(2x) neither overflows nor underflows, and plain sums can be used."""


@dataclass(frozen=True)
class Interval:
    """Bounds of a quantity. low == high if the quantity is exact."""

    low: float
    high: float

    @property
    def exact(self) -> bool:
        """True if the quantity is exact."""
        return self.low == self.high


@dataclass(frozen=True)
class Histogram:
    """The occupied buckets. Every field has shape (occupied buckets,)."""

    buckets: Integers
    """Bucket numbers, ascending."""
    counts: Integers
    """Number of weights in each bucket."""
    log_sum_weights: Floats
    """log of the sum of the weights of each bucket."""
    log_sum_square_weights: Floats
    """log of the sum of their squares."""

    @property
    def low(self) -> Floats:
        """The lower edge of each bucket, in nats."""
        return np.concatenate(([-np.inf], EDGES))[self.buckets]

    @property
    def high(self) -> Floats:
        """The upper edge of each bucket, in nats."""
        return np.concatenate((EDGES, [np.inf]))[self.buckets]


def bucket_of(log_ratio: npt.ArrayLike) -> Integers:
    """The bucket of each log-ratio; -inf lies in the first bucket. NaN is not allowed."""
    x = np.asarray(log_ratio, np.float64)
    if x.size < LOOKED_UP:
        return np.searchsorted(EDGES, x, side="right")
    lowest, nearby = lowest_buckets()
    found: Integers = lowest[np.ascontiguousarray(x).view(np.uint64) >> np.uint64(REST)]
    for _ in range(nearby):
        found = found + (x >= UPPER[found])
    return found


@cache
def lowest_buckets() -> tuple[Integers, int]:
    """(by the first bits of a float64, the bucket of the smallest number with these bits; the most edges among such numbers).

    A number is found in a fifth of the time of a binary search.
    """
    first = np.arange(1 << (64 - REST), dtype=np.uint64) << np.uint64(REST)
    ends = np.stack((first, first | np.uint64((1 << REST) - 1))).view(np.float64)
    ends = np.where(np.isnan(ends), np.copysign(np.inf, ends), ends)
    buckets = np.searchsorted(EDGES, ends, side="right")
    return buckets.min(axis=0), int((buckets.max(axis=0) - buckets.min(axis=0)).max())


def histogram(log_ratio: npt.ArrayLike) -> Histogram:
    """The histogram of one set of log-ratios."""
    x = np.asarray(log_ratio, np.float64)
    table = bucket_table(bucket_of(x), x, BUCKETS)
    return Histogram(*table)


def bucket_table(
    cells: Integers, log_ratio: Floats, count: int, times: Floats | None = None
) -> tuple[Integers, Array, Floats, Floats]:
    """(occupied cells, counts, log-sums of w, log-sums of w^2).

    cells: group * BUCKETS + bucket of each element, below `count`. log_ratio: of each element, in nats. times: how often each
    element counts; None: once, and the counts are whole numbers.
    """
    counts = totals(cells, times, count)
    occupied = np.flatnonzero(counts)
    with np.errstate(divide="ignore"):
        if times is not None:
            logs = np.stack((log_ratio, 2 * log_ratio)) + np.log(times)
            sums = reduced(logs, cells, ("logsumexp", "logsumexp")).matrix
            return occupied, counts[occupied], sums[0], sums[1]
        if max(log_ratio.max(initial=0.0), -log_ratio.min(initial=0.0)) > PLAIN:
            sums = reduced(np.stack((log_ratio, 2 * log_ratio)), cells, ("logsumexp", "logsumexp")).matrix
        else:
            weights = exp(log_ratio)
            own = totals(cells, weights, count)[occupied]
            weights *= weights
            sums = np.log(np.stack([own, totals(cells, weights, count)[occupied]]))
    return occupied, counts[occupied], sums[0], sums[1]


def whole_histogram(distribution: "pl.DataFrame") -> Histogram:
    """One histogram of all rows of a distribution (see Run.distribution). It is exact, because counts and sums add."""
    codes = distribution["bucket"].to_numpy().astype(np.int64)
    names = ("count", "log_sum_weight", "log_sum_square_weight")
    matrix = np.stack([distribution[name].to_numpy().astype(np.float64) for name in names])
    with np.errstate(divide="ignore"):
        merged = reduced(matrix, codes, ("sum", "logsumexp", "logsumexp"))
    return Histogram(merged.codes, merged.matrix[0].astype(np.int64), merged.matrix[1], merged.matrix[2])


def histogram_columns(level: Level) -> tuple[str, str, str, str]:
    """The names of a level's four list columns: buckets, counts, log-sums of weights, log-sums of squared weights."""
    return (f"{level}_buckets", f"{level}_counts", f"{level}_log_sum_weights", f"{level}_log_sum_square_weights")


def quantile(part: Histogram, q: float) -> Interval:
    """The bucket that contains the q-quantile: the smallest x such that at least a share q of the log-ratios is <= x."""
    total = int(part.counts.sum())
    if not total:
        return Interval(np.nan, np.nan)
    place = int(np.searchsorted(np.cumsum(part.counts), q * total, side="left"))
    place = min(place, len(part.counts) - 1)
    return Interval(float(part.low[place]), float(part.high[place]))


def share_beyond(part: Histogram, amounts: npt.ArrayLike, log_ratios: Floats) -> Floats:
    """The share of the amounts beyond each log-ratio, shape (log_ratios,), in [0, 1]; 0 where all amounts are 0.

    Beyond a log-ratio >= 0 are the buckets from it on; beyond a log-ratio < 0 are the buckets below it. The shares are exact
    if the log-ratios are edges. amounts: one per bucket, such as counts or `summed_weights`.
    """
    values = np.asarray(amounts, np.float64)
    total = float(values.sum()) or 1.0
    shares = [values[part.high <= x if x < 0 else part.low >= x].sum() / total for x in log_ratios]
    return np.array(shares, np.float64)


def summed_weights(part: Histogram) -> Floats:
    """The summed weight of each bucket, in units of the largest bucket's sum; all 0 where every weight is 0."""
    largest = float(part.log_sum_weights.max())
    return np.exp(part.log_sum_weights - largest) if np.isfinite(largest) else np.zeros(len(part.counts))


def median_size(buckets: Integers, counts: Integers) -> tuple[float, float]:
    """(weighted median, largest) of abs(log-ratio) in nats, each bucket taken at its lower edge; at least one bucket.

    The first bucket, which has no lower edge, is taken at its upper edge.
    """
    sizes = np.abs(np.concatenate((EDGES[:1], EDGES))[buckets])
    order = np.argsort(sizes)
    middle = np.searchsorted(np.cumsum(counts[order]), counts.sum() / 2)
    return float(sizes[order][min(middle, len(sizes) - 1)]), float(sizes.max())
