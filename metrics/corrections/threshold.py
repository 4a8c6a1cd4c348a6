"""A threshold on the weights as data: a rule and its bounds, the same as a Correction, and the buckets it changes.

v is the weight after the threshold, w the weight before.

truncate   v = min(max(w, low), high)
mask       v = w inside [low, high), else 0
reject     v = 1 inside [low, high), else 0: tokens have no weights, and those outside the bounds leave the loss
"""

from dataclasses import dataclass
from math import inf, log
from typing import Literal

import numpy as np

from ratioscope.arrays import Booleans, Integers
from ratioscope.errors import ConfigError

from ..distribution import EDGES, LEVELS, THRESHOLDS, Histogram, Level, bucket_of
from .correction import Correction, Reject, Weigh, WeightedGap

ThresholdRule = Literal["truncate", "mask", "reject"]
RULES: tuple[ThresholdRule, ...] = ("truncate", "mask", "reject")
RULE_BY_NAME: dict[str, ThresholdRule] = {rule: rule for rule in RULES}
LEVEL_BY_NAME: dict[str, Level] = {level: level for level in LEVELS}
CAPS = tuple(float(threshold) for threshold in THRESHOLDS if threshold > 1)
FLOORS = tuple(float(threshold) for threshold in THRESHOLDS if threshold < 1)
_BY: dict[Level, Literal["token", "sum", "mean"]] = {"token": "token", "sequence": "sum", "geometric": "mean"}


@dataclass(frozen=True)
class Threshold:
    """A rule with its bounds, 0 <= low < high."""

    rule: ThresholdRule
    level: Level = "token"
    """Level of the bounded weights: tokens, sequences, or geometric means of sequences."""
    low: float = 0.0
    """The floor; 0 is none."""
    high: float = inf
    """The cap; inf is none."""

    def __post_init__(self) -> None:
        if not 0 <= self.low < self.high:
            raise ConfigError(f"{self.rule}: bounds [{self.low:g}, {self.high:g}] are empty; give 0 <= low < high")

    @property
    def name(self) -> str:
        """Such as `truncate token at 2`, `mask sequence outside 0.5 to 5`, `reject geometric below 0.999`."""
        low, high = (f"{bound:.6g}" for bound in (self.low, self.high))
        if self.rule == "truncate":
            bounds = f"at {high}" if self.low == 0 else f"below {low}" if self.high == inf else f"to {low}–{high}"
        else:
            bounds = (
                f"above {high}" if self.low == 0 else f"below {low}" if self.high == inf else f"outside {low}–{high}"
            )
        return f"{self.rule} {self.level} {bounds}"

    @property
    def bounds(self) -> bool:
        """True if it has a floor or a cap."""
        return self.low > 0 or self.high < inf

    @property
    def exact(self) -> bool:
        """True if a histogram gives its effect exactly: both bounds are edges, so no bucket is cut."""
        return not any(place(bound)[1] for bound in (self.low, self.high))

    def correction(self, gap: WeightedGap = "mismatch") -> Correction:
        """The Correction that does the same to tokens."""
        if self.rule == "reject":
            return Correction(self.name, (Reject("weight", _BY[self.level], self.low, self.high),), gap)
        outside: Literal["clamp", "zero"] = "clamp" if self.rule == "truncate" else "zero"
        return Correction(self.name, (Weigh(self.level, self.low, self.high, outside),), gap)


NOTHING = Threshold("reject")
"""No correction, as a threshold: rejection without bounds leaves weights of 1."""


def threshold_of(correction: Correction) -> Threshold | None:
    """The correction as one bound on a weight; None if it takes several steps, or none."""
    match correction.steps:
        case (Weigh(level, low, high, outside),):
            return Threshold("truncate" if outside == "clamp" else "mask", level, low, high)
    return None


def rule_name(correction: Correction) -> str:
    """The name of the correction as one bound on a weight, which pages show; its own name if it is none.

    >>> rule_name(Correction("token TIS 2", (Weigh("token", high=2.0),))), rule_name(Correction("none", ()))
    ('truncate token at 2', 'none')
    """
    threshold = threshold_of(correction)
    return threshold.name if threshold else correction.name


def place(bound: float) -> tuple[int, bool]:
    """(the last bucket that begins below the bound, whether the bound cuts it); (-1, False) for a bound of 0 or inf."""
    if not 0 < bound < inf:
        return -1, False
    at = int(np.searchsorted(EDGES, log(bound)))
    near = [k for k in (at - 1, at) if 0 <= k < len(EDGES) and abs(EDGES[k] - log(bound)) <= 1e-12]
    return (near[0], False) if near else (at, True)


@dataclass(frozen=True)
class BoundSides:
    """For each bucket, on which side of the bounds it lies; exactly one of the four is true."""

    inside: Booleans
    """Wholly inside the bounds."""
    below: Booleans
    """Wholly below the floor."""
    above: Booleans
    """Wholly above the cap."""
    cut: Booleans
    """A bound lies within the bucket."""


def sides(buckets: Integers, threshold: Threshold) -> BoundSides:
    """On which side of the bounds each of these buckets lies."""
    (bottom, low_cuts), (top, high_cuts) = place(threshold.low), place(threshold.high)
    below = buckets < bottom if low_cuts else buckets <= bottom
    above = buckets > top if threshold.high < inf else np.zeros(len(buckets), np.bool_)
    cut = ((buckets == bottom) & low_cuts) | ((buckets == top) & high_cuts)
    return BoundSides(~below & ~above & ~cut, below, above, cut)


def treated(part: Histogram, threshold: Threshold) -> tuple[Histogram, int]:
    """(the histogram of the weights that are left, the number of weights removed). Its sums of weights are unknown (NaN).

    The weights of a bucket that a bound cuts stay in that bucket.
    """
    buckets = np.asarray(part.buckets, np.int64).copy()
    side_of = sides(buckets, threshold)
    gone = side_of.below | side_of.above if threshold.rule != "truncate" else np.zeros(len(buckets), np.bool_)
    if threshold.rule == "reject":
        buckets[:] = bucket_of(0.0)
    if threshold.rule == "truncate":
        for side, bound in ((side_of.below, threshold.low), (side_of.above, threshold.high)):
            if side.any():
                buckets[side] = bucket_of(log(bound))
    occupied, owner = np.unique(buckets[~gone], return_inverse=True)
    counts = np.bincount(owner, part.counts[~gone], len(occupied)).astype(np.int64)
    unknown = np.full(len(occupied), np.nan)
    return Histogram(occupied, counts, unknown, unknown), int(part.counts[gone].sum())
