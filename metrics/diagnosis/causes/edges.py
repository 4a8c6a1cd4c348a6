"""The tokens near an edge of the responses that separate the gap best."""

from collections.abc import Sequence

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..evidence import Evidence
from ..share import usual_distances
from ..subset_faults import FEW_TOKENS

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
