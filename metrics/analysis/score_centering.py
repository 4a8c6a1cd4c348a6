"""Score centering as a correction: the bias of a policy gradient that it removes, alone and with bounded importance weights.

At each token a trainer adds A f(w) s(y), with y the sampled token, s its score, w = p / q and f what the trainer makes of the
weight. The whole weight, A w s(y), is unbiased under the trainer at this prefix; the difference is the bias. Score centering
subtracts A sum_v q(v) f(p(v) / q(v)) s(v), the mean of f(w) s over the sampler. Trainers sum over the support and take q for
p scaled to the sampler's mass outside it; along a direction that is one number outside, the bins here give the same sum.

Score centering sets the mean of the added term to 0, no more. If the advantage depends on the next token, the covariance of A
and s under the sampler stays in the place of that under the trainer: the gradient is not unbiased, and the numbers contain that.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Literal

import numpy as np

from ratioscope.arrays import Floats

from .support_bins import Bins
from .support_metrics import (
    SupportNumber,
    clustered_sums,
    metric_pairs,
    numbers,
    sampled_score,
    score,
    size_of_advantage,
)


@dataclass(frozen=True)
class Centering:
    """A way to weigh a token, with score centering or without."""

    name: str
    is_centered: bool
    """True if the expected score is subtracted."""
    outside: Literal["clamp", "zero", "one"] = "one"
    """A weight outside the bounds moves to the bound (TIS), or becomes 0 (IcePop). one: every weight is 1."""
    low: float = 0.0
    """The lower bound of the weight."""
    high: float = inf
    """The upper bound of the weight."""

    def weight(self, ratio: Floats) -> Floats:
        """f(w), the weight that the trainer gives."""
        if self.outside == "one":
            return np.ones(ratio.shape)
        if self.outside == "clamp":
            return np.clip(ratio, self.low, self.high)
        return np.where((ratio >= self.low) & (ratio <= self.high), ratio, 0.0)


_WEIGHTS = (
    Centering("no weights", is_centered=False),
    Centering("TIS 2", is_centered=False, outside="clamp", low=0.0, high=2.0),
    Centering("IcePop 0.5-5", is_centered=False, outside="zero", low=0.5, high=5.0),
)
CENTERINGS = tuple(
    replace(each, name=f"{'score centering' if is_centered else 'no centering'}, {each.name}", is_centered=is_centered)
    for each in _WEIGHTS
    for is_centered in (False, True)
)
"""Bounds are those of `corrections.correction.CORRECTIONS`."""


@dataclass(frozen=True)
class CenteringEffect:
    """The bias that a Centering leaves, beside that of neither weights nor centering."""

    centering: Centering
    left: SupportNumber
    """sum(A (f(w) s - what is subtracted - w s)) / sum(|A|), in nats: above 0 the gap widens by more than it should."""
    removed: SupportNumber
    """1 - left / the bias of neither; 1: all of it, below 0: the bias grows. Its error allows that both read the same tokens."""
    because: str = ""
    """Reason why nothing can be said of `removed`; empty if it can."""


def bias_left(centering: Centering, bins: Bins) -> Floats:
    """A (f(w) s(y) - sum q f(p / q) s - w s(y)) of each token, the sum only if centered, (n,). Its mean is 0 without a bias."""
    excess = _excess(centering, bins.log_ratio) * sampled_score(bins)
    if centering.is_centered:
        # The mean of w s over the sampler is 0: without it no digit is lost where f(w) is w.
        excess = excess - (bins.q * _excess(centering, bins.x) * score(bins)).sum(axis=1)
    return np.where(bins.advantage != 0, bins.advantage * excess, 0.0)


def _excess(centering: Centering, log_ratio: Floats) -> Floats:
    """f(w) - w."""
    weight = np.exp(log_ratio)
    return centering.weight(weight) - weight


def support_sums(bins: Bins) -> Floats:
    """The sums of all support metrics, then those of each Centering twice; they add up over sets of sequences."""
    with np.errstate(over="ignore", invalid="ignore"):
        return clustered_sums([*metric_pairs(bins), *_pairs(bins)], bins.sequence, bins.stands_for)


def _pairs(bins: Bins) -> Iterator[tuple[Floats, Floats]]:
    """(bias left, |A|) and (bias left, bias of neither) of each Centering."""
    size, left = size_of_advantage(bins), [bias_left(each, bins) for each in CENTERINGS]
    for each in left:
        yield each, size
        yield each, left[0]


def effects(sums: Floats) -> tuple[CenteringEffect, ...]:
    """The effect of each Centering, from the last sums of `support_sums`, added up over any sequences."""
    found = numbers(sums[-2 * len(CENTERINGS) :])
    because = _why_not(found[0])
    parts = zip(CENTERINGS, found[::2], found[1::2], strict=True)
    return tuple(
        CenteringEffect(each, left, SupportNumber(1 - part.value, part.error, part.tokens, part.sequences), because)
        for each, left, part in parts
    )


def _why_not(neither: SupportNumber) -> str:
    """Reason why nothing can be said of a part of this bias; empty if it can."""
    if not neither.tokens:
        return "no token with a support has an advantage"
    if np.isnan(neither.value):
        return "weights are beyond the largest number"
    if neither.sequences < 2:
        return "an error needs two sequences"
    return "" if neither.is_beyond_noise else "the bias without a correction is within its error"
