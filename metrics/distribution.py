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
How = Literal["truncate", "mask"]
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


def clipped_share(part: Histogram, *, low: float = 0.0, high: float = np.inf) -> Interval:
    """Share of weights outside [low, high): what truncation or masking at these weights touches."""
    total = int(part.counts.sum())
    if not total:
        return Interval(np.nan, np.nan)
    with np.errstate(over="ignore"):
        inside, cut = _split((np.exp(part.low), np.exp(part.high)), low, high)
    outside = int(part.counts[~inside & ~cut].sum())
    return Interval(outside / total, (outside + int(part.counts[cut].sum())) / total)


def mass_removed(part: Histogram, *, low: float = 0.0, high: float = np.inf, how: How = "truncate") -> Interval:
    """Share of the summed weight that is lost. Truncation lifts weights to `low`, so with a low bound it can be negative."""
    if not np.isfinite(part.log_sum_weights).any():  # nothing on record, or every weight is 0
        return Interval(np.nan, np.nan)
    treated = _treated(part, low, high, how)
    return Interval(1 - (treated.sum + treated.most) / treated.whole, 1 - (treated.sum + treated.least) / treated.whole)


def ess_after(part: Histogram, *, low: float = 0.0, high: float = np.inf, how: How = "truncate") -> Interval:
    """(sum w)^2 / (n sum w^2) of the weights after truncation to, or masking outside, [low, high); n counts all of them.

    NaN where no weight is left. The interval follows from the extremes the weights of a cut bucket can take.
    """
    if not np.isfinite(part.log_sum_weights).any():  # nothing on record, or every weight is 0
        return Interval(np.nan, np.nan)
    t = _treated(part, low, high, how)
    total = float(part.counts.sum())

    def ess(a: float, slope: float) -> float:
        squares = t.squares + slope * a
        return (t.sum + a) ** 2 / (total * squares) if squares > 0 else np.nan

    # A square over a linear function is convex: least at its stationary point, greatest at an end.
    stationary = t.sum - 2 * t.squares / t.steepest if t.steepest > 0 else t.least
    lowest = ess(float(np.clip(stationary, t.least, t.most)), t.steepest)
    highest = max(ess(t.least, t.flattest), ess(t.most, t.flattest))
    return Interval(lowest, highest if np.isnan(highest) else min(highest, 1.0))


@dataclass(frozen=True)
class _Treated:
    """Sums of treated weights: of the buckets that no bound cuts, and what those that one cuts can add.

    A cut bucket adds a in [least, most] to the sum, and between flattest * a and steepest * a to the sum of squares.
    """

    whole: float
    sum: float
    squares: float
    least: float
    most: float
    flattest: float
    steepest: float


def _treated(part: Histogram, low: float, high: float, how: How) -> _Treated:
    # In units of the largest weight that is left, only what is not left can overflow.
    unit = float(min(np.max(part.log_sum_weights - np.log(part.counts)), np.log(high)))
    with np.errstate(over="ignore", divide="ignore"):
        weights, squares = np.exp(part.log_sum_weights - unit), np.exp(part.log_sum_square_weights - 2 * unit)
        low, high = float(np.exp(np.log(low) - unit)), float(np.exp(np.log(high) - unit))
        ends = np.exp(part.low - unit), np.exp(part.high - unit)
    inside, cut = _split(ends, low, high)
    sums, square_sums = weights[inside].sum(), squares[inside].sum()
    if how == "truncate":
        for bound, beyond in ((low, ends[1] <= low), (high, ends[0] >= high)):
            count = part.counts[beyond].sum()
            sums, square_sums = (
                sums + (count * bound if count else 0.0),
                square_sums + (count * bound**2 if count else 0.0),
            )
    least, most = _cut_range(part.counts[cut], weights[cut], (ends[0][cut], ends[1][cut]), (low, high), how)
    flattest = max(float(ends[0][cut].min(initial=np.inf)), low) if cut.any() else 0.0
    steepest = min(float(ends[1][cut].max(initial=0.0)), high) if cut.any() else 0.0
    return _Treated(float(weights.sum()), float(sums), float(square_sums), least, most, flattest, steepest)


def _cut_range(
    counts: npt.NDArray[np.int64], weights: Floats, ends: tuple[Floats, Floats], bounds: tuple[float, float], how: How
) -> tuple[float, float]:
    """The least and the most that the treated weights of cut buckets can sum to."""
    if how == "mask":
        return 0.0, float(weights.sum())
    smallest, largest = np.clip(ends[0], *bounds), np.clip(ends[1], *bounds)
    return float((counts * smallest).sum()), float((counts * largest).sum())


def _split(ends: tuple[Floats, Floats], low: float, high: float) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which buckets lie inside [low, high), and which a bound cuts. Bounds within rounding of an end do not cut."""
    bottom, top = ends
    at_low = (bottom >= low * (1 - 1e-12)) | (low <= 0)
    at_high = top <= high * (1 + 1e-12)
    outside = (top <= low * (1 + 1e-12)) | (bottom >= high * (1 - 1e-12))
    inside = at_low & at_high & ~outside
    return inside, ~inside & ~outside
