"""The tokens near an edge of the responses that separate the gap best, and whether the gap there is a step or a slope."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Result
from ..evidence import Evidence
from ..share import usual_distances
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


CUTS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512, 1024)
"""Numbers of first or last tokens that are tried."""


def best_cut(evidence: Evidence, from_edge: Integers, cuts: Sequence[int] = CUTS) -> int:
    """The number of tokens from the edge that separates the gap best; 0 if none does.

    The likelihood is that of exponential distances with one mean near the edge and another one far from it. The near mean must
    be the larger one.
    """
    if not len(evidence) or not len(cuts):
        return 0
    expected = usual_distances(evidence)
    size = max(int(from_edge.max()), max(cuts)) + 1
    count, own, usual = (
        np.concatenate(([0.0], np.cumsum(np.bincount(from_edge, values, minlength=size))))
        for values in (evidence.weights, evidence.weights * evidence.distance, evidence.weights * expected)
    )
    at = np.asarray(cuts)
    tokens, near, far = count[at], _ratios(own[at], usual[at]), _ratios(own[-1] - own[at], usual[-1] - usual[at])
    gain = -(tokens * np.log(near) + (count[-1] - tokens) * np.log(far))
    enough = np.minimum(tokens, count[-1] - tokens) >= FEW_TOKENS
    gain = np.where(enough & (near > far), gain, -np.inf)
    best = int(np.argmax(gain))
    return int(at[best]) if np.isfinite(gain[best]) else 0


def _ratios(own: Floats, usual: Floats) -> Floats:
    return np.maximum(own / np.maximum(usual, 1e-300), 1e-300)


def cross_cut(evidence: Evidence, from_edge: Integers) -> tuple[Booleans, int]:
    """(tokens near the edge, their usual number). The number is chosen in one half of the sequences and used in the other."""
    row = evidence.row_codes
    bad = np.zeros(len(evidence), np.bool_)
    for half in (0, 1):
        own = row % 2 == half
        if own.any():
            bad |= ~own & (from_edge < best_cut(evidence.kept(own), from_edge[own]))
    return bad, best_cut(evidence, from_edge)
