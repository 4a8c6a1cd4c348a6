"""A switch of weights while sequences are sampled: at one token of the step, or at a point of each sequence."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Floats, Integers

from ..cause import Cause, Result, absent
from ..evidence import Evidence
from ..fading import FADES, fading
from ..fits import least_squares
from ..subset_faults import CLEAR, FEW_TOKENS, log_sizes, mean_by, subset_fault
from .change_points import change_points, changed

EARLIEST, LONGEST = 6, 512
"""The positions between which a switch is looked for: the first tokens differ from the rest anyway."""
MOST_FADED = 0.3
"""Fall of the log size per doubling of the place that tokens before a switch may have: labelled switches have 0.04 to 0.28."""
MOST_BEGIN = 0.5
"""If fewer bad sequences have their first token, another fault took it at its undoing, of which the rest may be."""
NEAR = 8
"""Tokens on either side of a switch within which it shows."""


def _best_fall(sizes: Floats, position: Integers) -> int:
    """The position before which sizes are larger than after it, by two levels with least squares; 0 if none is."""
    longest = int(min(position.max(initial=0), LONGEST))
    if longest < EARLIEST + FEW_TOKENS:
        return 0
    counts = np.bincount(position, minlength=longest + 1)[: longest + 1].astype(np.float64)
    sums = np.bincount(position, sizes, minlength=longest + 1)[: longest + 1]
    before, total = np.cumsum(counts)[:-1], np.cumsum(sums)[:-1]
    after, rest = counts.sum() - before, sums.sum() - total
    with np.errstate(all="ignore"):
        fall = total / before - rest / after
        gain = np.where((fall > 0) & (before > 0) & (after > 0), before * after / (before + after) * fall**2, 0.0)
    gain[: EARLIEST - 1] = 0.0
    best = int(np.argmax(gain))
    return best + 1 if gain[best] > 0 else 0


def _fall_at(evidence: Evidence, cuts: Integers) -> tuple[float, float]:
    """(fall of the log sizes within NEAR tokens of the cuts beyond the slope of the step, its standard error).

    A gap that fades has its slope everywhere; a switch has a fall at its own token.
    """
    step = evidence.step_codes[1] if evidence.has("step") else np.zeros(len(evidence), np.int64)
    columns = np.stack([np.log2(1.0 + evidence.position), np.ones(len(evidence))], axis=1)
    values = log_sizes(evidence).copy()
    for value in range(int(step.max(initial=0)) + 1):
        own = step == value
        values[own] -= columns[own] @ np.linalg.lstsq(columns[own], values[own], rcond=None)[0]
    distance = evidence.position - cuts
    near = (np.abs(distance + 0.5) < NEAR) & (cuts > 0)
    if min((near & (distance < 0)).sum(), (near & (distance >= 0)).sum()) < FEW_TOKENS:
        return 0.0, np.inf
    sides = np.stack([(distance[near] < 0).astype(np.float64), np.ones(near.sum())], axis=1)
    coefficients, errors = least_squares(sides, values[near], evidence.kept(near))
    return float(coefficients[0]), float(errors[0])


def _is_by_step(evidence: Evidence, cuts: Integers) -> bool:
    """True if two halves of a step agree on its cut, and steps have different ones: a place of all steps is no switch."""
    if not evidence.has("step"):
        return False
    starts = evidence.starts
    step, half, cut = evidence.step_codes[1][starts], np.arange(len(starts)) % 2, cuts[starts].astype(np.float64)
    found = np.stack([mean_by(step[half == side], cut[half == side], int(step.max()) + 1)[0] for side in (0, 1)])
    both = (found > 0).all(axis=0)
    if both.sum() < 2:
        return False
    apart = np.abs(np.diff(found[:, both], axis=0))
    middles = found[:, both].mean(axis=0)
    return bool(np.median(apart) <= NEAR / 2 and np.ptp(middles) > NEAR)


def switch_inside(evidence: Evidence) -> Result:
    """Sequences are bad up to a point and clean after it: the weights changed while they were sampled.

    Old weights give one level up to the point: a gap that fades before it is of the prompt or of its keys and values.
    """
    result = _switch(evidence)
    if not result.holds or result.bad is None:
        return result
    own = evidence.kept(result.bad)
    if (own.position[own.starts] == 0).mean() < MOST_BEGIN:
        return absent("the first tokens of these sequences are of another fault")
    slope, error = fading(own)
    if slope > -max(FADES[0] * error, MOST_FADED):
        return result
    faded = f"but before it sizes change by {slope:+.2f} ± {error:.2f} per doubling of the place, as those of another prompt do"
    return replace(result, holds=False, effect=f"{result.effect}, {faded}")


def _switch(evidence: Evidence) -> Result:
    """The test by the place: the point is one of the step, as a sync stops all sequences at once, or one of each sequence."""
    # cuts: for each token the number of first tokens of its step that separates sizes best, chosen by the other half of rows
    half = evidence.row_codes % 2
    step = evidence.step_codes[1] if evidence.has("step") else np.zeros(len(evidence), np.int64)
    sizes = log_sizes(evidence)
    cuts = np.zeros(len(evidence), np.int64)
    for value in range(int(step.max(initial=0)) + 1):
        for side in (0, 1):
            own, other = (step == value) & (half == side), (step == value) & (half != side)
            cuts[other] = _best_fall(sizes[own], evidence.position[own])
    bad = evidence.position < cuts
    fall, error = _fall_at(evidence, cuts)
    if fall > CLEAR * error and _is_by_step(evidence, cuts) and min(bad.sum(), (~bad).sum()) >= FEW_TOKENS:
        middle = int(np.median(cuts[cuts > 0]))
        words = f"the first tokens of the responses, about {middle} by step,"
        result = subset_fault(evidence, bad, words, 2.0, {"position": middle, "sequences": "100%"})
        if result.holds:
            return result
    by_sequence = changed(evidence, upward=False)
    if not by_sequence.holds:
        return by_sequence
    early, late = np.quantile(change_points(evidence).down, [0.25, 0.75])
    if early < EARLIEST or late - early < NEAR:
        return absent(f"half of the falls are at tokens {early:.0f} to {late:.0f}: the place is that of all sequences")
    return by_sequence


CAUSES = (
    Cause(
        "switch_inside",
        "the weights changed while sequences were sampled",
        "place",
        switch_inside,
        "with the tokens after the change point of each sequence only",
        "The first part of a sequence is of older weights than the rest.",
        "Record the version of each token (rollout_versions), and correct per token; or let responses finish before a sync.",
        "Compare the change points with the times of the weight syncs.",
        estimate="in {sequences} of the sequences, up to about token {position}",
        mistaken_for={
            "retokenised": "Re-encoding makes the later part bad.",
            "different_prompt": "Another prompt decays from the first token at the same rate in all sequences.",
        },
    ),
)
