"""The effect of one threshold on the weights, computed from histograms alone: per step or over all steps, no token row needed.

The effect is exact if the bounds are edges of the histogram, as every published threshold is. For other bounds it is an
interval that contains the value. At sequence and geometric level each sequence has one weight, and means are over sequences.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers

from ..distribution import EDGES, Histogram, Interval, Level
from ..reduction import first_of_each
from .threshold import CAPS, BoundSides, Threshold, ThresholdRule, sides

Intervals = tuple[Floats, Floats]
"""(lower ends, upper ends) of intervals."""
VALUES = (
    "clipped_share",
    "removed_share",
    "mass_removed",
    "ess_before",
    "ess_after",
    "mean_weight",
    "bias",
    "variance",
)
"""As in effect.EFFECTS. mass_removed = 1 - sum v / sum w; negative if a floor adds more weight than a cap takes."""


def threshold_effects(distribution: pl.DataFrame, threshold: Threshold) -> pl.DataFrame:
    """One row per step: `weights` (their number), and both ends of the interval of each of VALUES, `<name>` and `<name>_most`.

    distribution: as Run.distribution returns it, ordered by step. NaN where a value is not defined.
    """
    steps = distribution["step"].to_numpy()
    starts = first_of_each(steps)
    names = ("bucket", "count", "log_sum_weight", "log_sum_square_weight")
    columns = [distribution[name].to_numpy().astype(np.float64) for name in names]
    count, effects = _effects(_Buckets.of(columns, starts, threshold), threshold)
    values = {f"{name}{end}": effects[name][at] for name in VALUES for at, end in enumerate(("", "_most"))}
    return pl.DataFrame({"step": steps[starts], "weights": count.astype(np.int64), **values})


def whole_effect(part: Histogram, threshold: Threshold) -> dict[str, Interval]:
    """Name -> interval of each of VALUES over all weights of a histogram; NaN if the histogram is empty."""
    if not len(part.counts):
        return dict.fromkeys(VALUES, Interval(np.nan, np.nan))
    columns = (part.buckets, part.counts, part.log_sum_weights, part.log_sum_square_weights)
    rows = _Buckets.of([np.asarray(c, np.float64) for c in columns], np.zeros(1, np.int64), threshold)
    _, effects = _effects(rows, threshold)
    return {name: Interval(float(least[0]), float(most[0])) for name, (least, most) in effects.items()}


def frontier(
    part: Histogram, level: Level, *, rules: Sequence[ThresholdRule] = ("truncate", "mask"), low: float = 0.0
) -> pl.DataFrame:
    """One row per rule and published cap above `low`: rule, cap and each of VALUES (lower ends; exact for a published low)."""
    thresholds = [Threshold(rule, level, low, cap) for rule in rules for cap in CAPS if cap > low]
    rows = [
        {"rule": each.rule, "cap": each.high, **{name: value.low for name, value in whole_effect(part, each).items()}}
        for each in thresholds
    ]
    return pl.DataFrame(rows)


@dataclass(frozen=True)
class _Buckets:
    """The occupied buckets of all groups, one row each, the rows of a group next to each other. A group is a step.

    Weights are in a unit of their group, so that none overflows.
    """

    starts: Integers
    """The first row of each group."""
    buckets: Integers
    number: Floats
    """Number of weights in the bucket."""
    weights: Floats
    """Their sum."""
    squares: Floats
    """The sum of their squares."""
    one: Floats
    """A weight of 1, in the unit of the group."""
    ends: Intervals
    """The weights at the edges of the bucket."""
    bounds: Intervals
    """The floor and the cap of the threshold."""
    unit: Floats
    """The unit of each group, a weight."""

    @staticmethod
    def of(columns: Sequence[Floats], starts: Integers, threshold: Threshold) -> "_Buckets":
        buckets, number = columns[0].astype(np.int64), columns[1]
        with np.errstate(all="ignore"):
            log_unit = _log_unit(columns[2] - np.log(number), starts, threshold)
            each = np.repeat(log_unit, np.diff(np.append(starts, len(buckets))))
            low, high = np.concatenate(([-np.inf], EDGES))[buckets], np.concatenate((EDGES, [np.inf]))[buckets]
            one = np.exp(-each)
            return _Buckets(
                starts,
                buckets,
                number,
                weights=np.exp(columns[2] - each),
                squares=np.exp(columns[3] - 2 * each),
                one=one,
                ends=(np.exp(low - each), np.exp(high - each)),
                bounds=(threshold.low * one, threshold.high * one),
                unit=np.exp(log_unit),
            )

    def total(self, values: Floats) -> Floats:
        """Sums per group."""
        return np.add.reduceat(values, self.starts) if len(self.starts) else np.empty(0)


def _log_unit(log_means: Floats, starts: Integers, threshold: Threshold) -> Floats:
    """Per group, the log of the largest mean weight of a bucket, at most the cap: in this unit no weight left overflows."""
    if not len(starts) or threshold.rule == "reject":
        return np.zeros(len(starts))
    largest = np.maximum.reduceat(log_means, starts)
    largest = np.where(np.isfinite(largest), largest, 0.0)
    return np.minimum(largest, log(threshold.high)) if threshold.high < inf else largest


def _effects(rows: _Buckets, threshold: Threshold) -> tuple[Floats, dict[str, Intervals]]:
    """(number of weights, VALUES) of each group."""
    side_of = sides(rows.buckets, threshold)
    with np.errstate(all="ignore"):
        n = rows.total(rows.number)
        left = _left(rows, threshold, side_of)
        whole = rows.total(rows.weights)
        known = np.where(whole > 0, 1.0, np.nan)
        before = np.minimum(known * whole**2 / (n * rows.total(rows.squares)), 1.0)
        outside = rows.total(rows.number * (side_of.below | side_of.above)) / n
        touched = outside, outside + rows.total(rows.number * side_of.cut) / n
        gone = _zero_share(rows, threshold, n) if threshold.rule == "truncate" else touched
        least, most = left.sums
        bias = _bias(rows, threshold, side_of)
        zero = np.zeros_like(n)
        return n, {
            "clipped_share": (zero, zero) if threshold.rule == "reject" else touched,
            "removed_share": gone,
            "mass_removed": (known * (1 - most / whole), known * (1 - least / whole)),
            "ess_before": (before, before),
            "ess_after": left.ess(n),
            "mean_weight": (rows.unit * least / n, rows.unit * most / n),
            "bias": (rows.unit * rows.total(bias[0]) / n, rows.unit * rows.total(bias[1]) / n),
            "variance": left.variance(n, rows.unit**2),
        }


def _zero_share(rows: _Buckets, threshold: Threshold, n: Floats) -> Intervals:
    """The share of weights of 0, which lie in the first bucket; 0 if a floor lifts them."""
    share = rows.total(rows.number * (rows.buckets == 0)) / n * (threshold.low == 0)
    return share, share


@dataclass(frozen=True)
class _Left:
    """Per group, the sums of v and v^2 over the buckets that no bound cuts, and the range of what cut buckets add.

    Cut buckets add an unknown a in [least, most] to the sum of v, and between flattest * a and steepest * a to that of v^2.
    """

    sum: Floats
    """Sum of v over whole buckets."""
    squares: Floats
    """Sum of v^2 over whole buckets."""
    least: Floats
    """The least that cut buckets add to the sum of v."""
    most: Floats
    """The most that cut buckets add to the sum of v."""
    flattest: Floats
    """The smallest v in a cut bucket; 0 without one."""
    steepest: Floats
    """The largest v in a cut bucket; 0 without one."""

    @property
    def sums(self) -> Intervals:
        return self.sum + self.least, self.sum + self.most

    def ess(self, n: Floats) -> Intervals:
        """(least, greatest) ESS. A square over a linear function of a is convex: least where stationary, greatest at an end."""

        def at(a: Floats, slope: Floats) -> Floats:
            squares = self.squares + slope * a
            return np.where(squares > 0, (self.sum + a) ** 2 / (n * squares), np.nan)

        stationary = np.where(self.steepest > 0, self.sum - 2 * self.squares / self.steepest, self.least)
        lowest = at(np.clip(stationary, self.least, self.most), self.steepest)
        highest = np.fmax(at(self.least, self.flattest), at(self.most, self.flattest))
        return np.minimum(lowest, 1.0), np.minimum(highest, 1.0)

    def variance(self, n: Floats, scale: Floats) -> Intervals:
        """(least, greatest) variance. It is concave in a: greatest at its stationary point, least at an end."""

        def at(a: Floats, slope: Floats) -> Floats:
            return np.maximum((self.squares + slope * a) / n - ((self.sum + a) / n) ** 2, 0.0)

        ends = np.fmin(at(self.least, self.flattest), at(self.most, self.flattest))
        stationary = np.clip(self.steepest * n / 2 - self.sum, self.least, self.most)
        return scale * ends, scale * at(stationary, self.steepest)


def _left(rows: _Buckets, threshold: Threshold, side_of: BoundSides) -> _Left:
    """The sums after the threshold. side_of: the side of each row of `rows`."""
    low, high = rows.bounds
    if threshold.rule == "reject":
        sums, squares = rows.number * rows.one * side_of.inside, rows.number * rows.one**2 * side_of.inside
        least, most, flat, steep = np.zeros_like(sums), rows.number * rows.one, rows.one, rows.one
    else:
        sums, squares = np.where(side_of.inside, rows.weights, 0.0), np.where(side_of.inside, rows.squares, 0.0)
        flat, steep = np.maximum(rows.ends[0], low), np.minimum(rows.ends[1], high)
        least, most = (np.zeros_like(sums), rows.weights) if threshold.rule == "mask" else _held(rows, side_of)
    if threshold.rule == "truncate":
        for side, bound in ((side_of.below, low), (side_of.above, high)):
            sums, squares = np.where(side, rows.number * bound, sums), np.where(side, rows.number * bound**2, squares)
    if not len(rows.starts):
        return _Left(*(np.empty(0) for _ in range(6)))
    flattest = np.minimum.reduceat(np.where(side_of.cut, flat, np.inf), rows.starts)
    return _Left(
        sum=rows.total(sums),
        squares=rows.total(squares),
        least=rows.total(np.where(side_of.cut, least, 0.0)),
        most=rows.total(np.where(side_of.cut, most, 0.0)),
        flattest=np.where(np.isfinite(flattest), flattest, 0.0),
        steepest=np.maximum.reduceat(np.where(side_of.cut, steep, 0.0), rows.starts),
    )


def _held(rows: _Buckets, side_of: BoundSides) -> Intervals:
    """(least, greatest) sum of the weights of each bucket after truncation; 0 without a bucket that a bound cuts.

    If one bound cuts the bucket, v is concave or convex in w: its mean lies between the value of the chord at the mean of w
    and the value of v there.
    """
    if not side_of.cut.any():  # a published threshold: half of the time
        return np.zeros_like(rows.weights), np.zeros_like(rows.weights)
    (low, high), (floor, cap) = rows.ends, rows.bounds
    smallest, largest = np.clip(low, floor, cap), np.clip(high, floor, cap)
    mean = np.clip(rows.weights / rows.number, low, high)
    chord = np.where(np.isfinite(high), smallest + (largest - smallest) * (mean - low) / (high - low), smallest)
    at_mean, both = np.clip(mean, floor, cap), (low < floor) & (high > cap)
    least = np.where(both, smallest, np.minimum(chord, at_mean))
    return rows.number * least, rows.number * np.where(both, largest, np.maximum(chord, at_mean))


def _bias(rows: _Buckets, threshold: Threshold, side_of: BoundSides) -> Intervals:
    """(least, greatest) sum of |v - w| in each bucket."""
    if threshold.rule == "reject":
        # 1/2 is an edge: in a bucket either |1 - w| or |0 - w| is the smaller one for all its weights.
        kept, gone = np.abs(rows.weights - rows.number * rows.one), rows.weights
        sure = np.where(side_of.inside, kept, gone)
        return np.where(side_of.cut, np.minimum(kept, gone), sure), np.where(side_of.cut, np.maximum(kept, gone), sure)
    if threshold.rule == "mask":
        return np.where(side_of.inside | side_of.cut, 0.0, rows.weights), np.where(side_of.inside, 0.0, rows.weights)
    floor, cap = rows.bounds
    moved = np.where(side_of.below, rows.number * floor - rows.weights, 0.0)
    moved = np.where(side_of.above, rows.weights - rows.number * cap, moved)
    first, second = (np.abs(held - rows.weights) for held in _held(rows, side_of))
    both = (rows.ends[0] < floor) & (rows.ends[1] > cap)
    widest = rows.number * np.maximum(floor - rows.ends[0], rows.ends[1] - cap)
    least = np.where(both, 0.0, np.minimum(first, second))
    most = np.where(both, widest, np.maximum(first, second))
    return np.where(side_of.cut, least, moved), np.where(side_of.cut, most, moved)
