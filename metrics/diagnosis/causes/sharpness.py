"""Tells a step of the gap at a place from a slope."""

import numpy as np

from ratioscope.arrays import Integers

from ..evidence import Evidence
from ..left_out import FEW_TOKENS, ratio_of

NEAR = 4
"""Tokens on either side of a change within which a sharp change shows."""
SHARP = 0.7
"""A change is sharp if so much of its log ratio shows within NEAR tokens; a decay spreads over more. A convention."""


def sharpness(evidence: Evidence, place: Integers) -> float:
    """Share of the whole log ratio that a change at a place has within NEAR tokens on either side; 1 for a step, 0 for a slope.

    place: position of the change in each token's sequence, shape (tokens,).
    """
    distance = evidence.position - place
    whole, _ = ratio_of(evidence, distance >= 0)
    near = np.abs(distance + 0.5) < NEAR
    if min((near & (distance >= 0)).sum(), (near & (distance < 0)).sum()) < FEW_TOKENS or whole <= 0:
        return 0.0
    step, _ = ratio_of(evidence.kept(near), distance[near] >= 0)
    return float(np.log(max(step, 1e-300)) / np.log(whole)) if abs(np.log(whole)) > 0.1 else 0.0
