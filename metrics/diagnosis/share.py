"""The share of a gap that a fault explains, with its error: the gap as recorded against the gap as it would be without the fault.

Two kinds of undoing have the same measure. A fault that changed numbers (a shift, a temperature) is undone by changing them back:
each token has a distance before and after. A fault of some tokens (a stale replica, the first tokens) is undone by giving these
tokens the distance that the other tokens of equal probability have: distances depend on the probability even in healthy runs.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from .evidence import Evidence, once, unit_sums

EDGES = -np.log([0.999, 0.99, 0.9, 0.7, 0.5, 0.25, 0.1, 0.02, 0.001])
"""Bounds in nats between the strata of probability within which tokens are compared."""
FEW = 8
"""A stratum with fewer tokens than this uses the mean of its neighbours, through the overall ratio. A convention."""


@dataclass(frozen=True)
class AtStep:
    """The gap of one step before and after an undoing."""

    step: int
    tokens: int
    before: float
    """Mean clipped K3 as recorded, nats/token."""
    after: float
    """Mean clipped K3 without the fault, nats/token."""


@dataclass(frozen=True)
class Share:
    """How much of a gap an undoing removes."""

    share: float
    """1 - after / before, at most 1. Negative if the gap grows."""
    error: float
    """Standard error, with sequences as the independent units."""
    before: float
    """Mean clipped K3 as recorded, nats/token."""
    after: float
    """Mean clipped K3 without the fault, nats/token."""
    over_steps: tuple[AtStep, ...] = ()
    """The same of each step, ascending; empty if the steps are not on record."""
    before_error: float = 0.0
    """Standard error of `before` where the evidence is a sample of the tokens; 0 where it holds them all."""

    @property
    def z(self) -> float:
        """The share in standard errors."""
        return self.share / self.error if self.error > 0 else (np.inf if self.share > 0 else 0.0)

    @property
    def most(self) -> float:
        """The share plus two standard errors."""
        return self.share + 2 * self.error


def share_explained(evidence: Evidence, after: Floats) -> Share:
    """The share that an undoing explains.

    after: distance of each token without the fault, shape (tokens,).
    """
    own, rest = unit_sums(evidence, evidence.distance), unit_sums(evidence, after)
    total, remaining, tokens = own.sum(), rest.sum(), max(float(evidence.weights.sum()), 1e-300)
    steps = over_steps(evidence, after)
    before, after_ = float(total / tokens), float(remaining / tokens)
    chosen = evidence.error(evidence.distance)
    if total <= 0:  # two equal sides: there is nothing to explain
        return Share(0.0, 0.0, 0.0, after_, steps, chosen)
    if len(own) < 2:
        return Share(float(1 - remaining / total), np.inf, before, after_, steps, chosen)
    # Linearised ratio, the sequence as the unit: Cochran 1977, eq. 6.13.
    ratio = remaining / total
    residual = rest - ratio * own
    error = float(np.sqrt((residual**2).sum() * len(own) / (len(own) - 1)) / total)
    return Share(float(1 - ratio), error, before, after_, steps, chosen)


def over_steps(evidence: Evidence, after: Floats) -> tuple[AtStep, ...]:
    """The gap of each step before and after an undoing; empty if the steps are not on record.

    after: distance of each token without the fault, shape (tokens,).
    """
    if not evidence.has("step"):
        return ()
    steps, index = evidence.step_codes
    tokens = np.bincount(index, minlength=len(steps))
    weights = evidence.weights
    sums = (np.bincount(index, weights * values, minlength=len(steps)) for values in (evidence.distance, after))
    before, without = ((own / np.bincount(index, weights, minlength=len(steps))).tolist() for own in sums)
    return tuple(map(AtStep, steps.tolist(), tokens.tolist(), before, without))


@once
def strata(evidence: Evidence) -> Integers:
    """The stratum of each token, by the larger of its two probabilities: the side at fault is often the smaller one."""
    return np.digitize(-np.maximum(evidence.earlier, evidence.later), EDGES)


def expected_from(evidence: Evidence, good: Booleans) -> Floats:
    """The distance that each token would have if it were like the good tokens of its stratum, shape (tokens,).

    Strata with few good tokens are filled from the ratio of all strata.
    """
    own = evidence.distance
    stratum = strata(evidence)
    size = len(EDGES) + 1
    weights = evidence.weights
    counts = np.bincount(stratum[good], weights[good], minlength=size)
    sums = np.bincount(stratum[good], (weights * own)[good], minlength=size)
    overall = sums.sum() / max(counts.sum(), 1e-300)
    whole = np.bincount(stratum, weights, minlength=size)
    everything = np.bincount(stratum, weights * own, minlength=size) / np.maximum(whole, 1e-300)
    mean_of_all = (everything * counts).sum() / max(counts.sum(), 1e-300)
    # A stratum without good tokens: the usual course over strata, at the level of the good tokens.
    filled = everything * (overall / mean_of_all if mean_of_all > 0 else 0.0)
    means: Floats = (sums + FEW * filled) / (counts + FEW)
    return np.asarray(means[stratum])


@once
def usual_distances(evidence: Evidence) -> Floats:
    """The mean distance of each token's stratum, shape (tokens,)."""
    return expected_from(evidence, np.ones(len(evidence), np.bool_))


def undone_by_leaving(evidence: Evidence, bad: Booleans) -> Floats:
    """Distance of each token if the bad tokens were like the others of their stratum, shape (tokens,)."""
    return np.where(bad, expected_from(evidence, ~bad), evidence.distance)


def level_ratios(evidence: Evidence, labels: Integers) -> tuple[Floats, Floats, Integers]:
    """(ratio of the observed to the usual distance, its log error, tokens) of each label 0 .. max, see `expected_from`."""
    expected = usual_distances(evidence)
    size = int(labels.max(initial=-1)) + 1
    known = labels >= 0
    weighted = [evidence.weights * values for values in (evidence.distance, expected)]
    observed, usual = (
        np.bincount(labels[known], values[known], minlength=size).astype(np.float64) for values in weighted
    )
    ratio: Floats = observed / np.maximum(usual, 1e-300)
    error = _log_errors(evidence, labels, expected, ratio, observed, known)
    return ratio, error, np.bincount(labels[known], minlength=size).astype(np.int64)


def _log_errors(
    evidence: Evidence, labels: Integers, expected: Floats, ratio: Floats, observed: Floats, known: Booleans
) -> Floats:
    """Standard error of the log of each label's ratio; sequences are the independent units."""
    size = len(ratio)
    pair = evidence.units[known] * size + labels[known]
    unique, inverse = np.unique(pair, return_inverse=True)
    residual = evidence.weights[known] * (evidence.distance[known] - ratio[labels[known]] * expected[known])
    sums = np.bincount(inverse, residual)
    of_label = unique % size
    squares = np.bincount(of_label, sums**2, minlength=size)
    rows = np.bincount(of_label, minlength=size)
    with np.errstate(all="ignore"):
        errors: Floats = np.sqrt(squares * rows / np.maximum(rows - 1, 1)) / observed
    return np.where((rows > 1) & (observed > 0), errors, np.inf)


def separation(evidence: Evidence, bad: Booleans) -> float:
    """Gain of the log-likelihood if bad tokens have a larger mean distance than the others; -inf if they have not.

    The distances are exponential around the usual one of their stratum.
    """
    distance, usual = (evidence.weights * values for values in (evidence.distance, usual_distances(evidence)))
    own, expected = distance[bad].sum(), usual[bad].sum()
    rest, others = distance.sum() - own, usual.sum() - expected
    if min(own, rest, expected, others) <= 0 or own / expected <= rest / others:
        return -np.inf
    tokens, all_tokens = evidence.weights[bad].sum(), evidence.weights.sum()
    return float(-(tokens * np.log(own / expected) + (all_tokens - tokens) * np.log(rest / others)))
