"""Tells a step of the gap at a place from a slope."""

from dataclasses import replace

import numpy as np

from ratioscope.arrays import Integers

from ..cause import Result
from ..evidence import Evidence
from ..subset_faults import FEW_TOKENS, ratio_of

NEAR = 4
"""Tokens on either side of a change within which a sharp change shows."""
SHARP = 0.7
"""A change is sharp if so much of its log ratio shows within NEAR tokens; a decay spreads over more. A convention."""
SPREAD = 8
"""Tokens within which half of the tokens of a sequence place its own change: they place those of re-encoded runs no better."""
LEAST_SHARP = 0.25
"""A change with a smaller share of its log ratio within SPREAD tokens is a slope: re-encoded runs have 0.45 and more."""


def sharpness(evidence: Evidence, place: Integers, near_tokens: int = NEAR) -> float:
    """Share of the whole log ratio that a change at a place has within some tokens on either side; 1 for a step, 0 for a slope.

    place: position of the change in each token's sequence, shape (tokens,).
    """
    distance = evidence.position - place
    whole, _ = ratio_of(evidence, distance >= 0)
    near = np.abs(distance + 0.5) < near_tokens
    if min((near & (distance >= 0)).sum(), (near & (distance < 0)).sum()) < FEW_TOKENS or whole <= 0:
        return 0.0
    step, _ = ratio_of(evidence.kept(near), distance[near] >= 0)
    return float(np.log(max(step, 1e-300)) / np.log(whole)) if abs(np.log(whole)) > 0.1 else 0.0


def unless_a_slope(result: Result, evidence: Evidence, place: Integers) -> Result:
    """The result of a test, if the gap rises at the places that it found, and not all along the sequences.

    place: position of the rise in each token's sequence, shape (tokens,).
    """
    sharp = sharpness(evidence, place, SPREAD)
    if sharp >= LEAST_SHARP:
        return result
    words = f"but the gap grows all along: {max(sharp, 0):.0%} of the growth is within {SPREAD} tokens of the point"
    return replace(result, holds=False, effect=f"{result.effect}, {words}")
