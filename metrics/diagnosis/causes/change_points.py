"""Change points of sequences: from a point of its own on, the gap of a sequence is larger, or smaller."""

from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from ..cause import Result, undecided
from ..evidence import Evidence, once
from ..fits import best_changes
from ..subset_faults import FEW_TOKENS, log_sizes, mean_by, subset_fault
from .edges import unless_a_slope

LEAST_LENGTH = 12
"""The least tokens of a sequence that may have a change point."""
LEAST_ROWS = 8
"""The least sequences of that length that are looked at. A convention."""
GAIN = 8.0
"""Half the drop of the squared error, in variances, that makes a change point clear in half of a sequence's tokens."""


class Changes(NamedTuple):
    """Change points of sequences. Each sequence is looked at twice, by its even and by its odd tokens."""

    later: Booleans
    """True if a token comes after an upward change."""
    sooner: Booleans
    """True if a token comes before a downward change."""
    whole: Booleans
    """True if a token is of a sequence without a change that is as bad as others are after an upward one."""
    up: Integers
    """Positions of the upward changes."""
    down: Integers
    """Positions of the downward changes."""
    rise: Integers
    """Position of the upward change of each token's sequence; -1 without one."""


@once
def change_points(evidence: Evidence) -> Changes:
    """The change points of all sequences.

    The change point of a sequence is chosen among its even tokens and applied to its odd ones, and the other way round.
    """
    row = evidence.row_codes
    first = np.repeat(evidence.starts, np.diff(np.append(evidence.starts, len(evidence))))
    place = np.arange(len(evidence)) - first
    long = (np.bincount(row) >= LEAST_LENGTH)[row]
    variance = max(float(log_sizes(evidence).var()), 1e-12)
    later, sooner, whole = (np.zeros(len(evidence), np.bool_) for _ in range(3))
    rise = np.full(len(evidence), -1)
    up: list[Integers] = []
    down: list[Integers] = []
    for parity in (0, 1):
        chosen = np.flatnonzero(long & (place % 2 == parity))
        others = long & (place % 2 != parity)
        at, rises = best_changes(log_sizes(evidence)[chosen], row[chosen], GAIN * variance)
        where = np.full(evidence.rows, -1)
        for found, side in ((at[rises], up), (at[~rises], down)):
            where[row[chosen[found]]] = chosen[found]
            side.append(evidence.position[chosen[found]])
        rising = np.zeros(evidence.rows, np.bool_)
        rising[row[chosen[at[rises]]]] = True
        own = where[row]
        after = np.arange(len(evidence)) >= own
        later |= others & (own >= 0) & rising[row] & after
        rise = np.where(others & (own >= 0) & rising[row], evidence.position[own], rise)
        whole |= others & _as_bad(log_sizes(evidence)[chosen], row[chosen], where, rising, chosen)[row]
        sooner |= others & (own >= 0) & ~rising[row] & ~after
    return Changes(later, sooner, whole, np.concatenate(up), np.concatenate(down), rise)


def _as_bad(values: Floats, row: Integers, where: Integers, rising: Booleans, chosen: Integers) -> Booleans:
    """True where a sequence has no change and a level nearer to that after an upward change, shape (rows,).

    where: index of the change of each sequence, -1 without one. chosen: index of each value among all tokens.
    """
    after = rising[row] & (chosen >= where[row])
    before = rising[row] & ~after
    if not after.any() or not before.any():
        return np.zeros(len(where), np.bool_)
    between = (values[after].mean() + values[before].mean()) / 2
    means, counts = mean_by(row, values, len(where))
    return np.asarray((where < 0) & (counts > 0) & (means > between), np.bool_)


def changed(evidence: Evidence, upward: bool) -> Result:
    lengths = np.bincount(evidence.row_codes)
    long = int((lengths >= LEAST_LENGTH).sum())
    if long < LEAST_ROWS:
        return undecided(f"too few sequences have {LEAST_LENGTH} tokens or more: {long}, and {LEAST_ROWS} are needed")
    changes = change_points(evidence)
    up, down = changes.up, changes.down
    bad, places = (changes.later, up) if upward else (changes.sooner, down)
    # Each sequence is looked at twice, once by its even and once by its odd tokens.
    share_of_rows = len(places) / (2 * long)
    others = len(down if upward else up)
    side = "after" if upward else "before"
    if bad.sum() < FEW_TOKENS or len(places) <= 2 * others or share_of_rows < 0.03:
        return Result(
            False,
            f"{share_of_rows:.0%} of the sequences change to a {'larger' if upward else 'smaller'} gap",
            "a change within 3% of the sequences would show",
        )
    result = subset_fault(
        evidence,
        bad,
        f"the tokens {side} a change point, in {share_of_rows:.0%} of the sequences,",
        2.0,
        {
            "sequences": f"{share_of_rows:.0%}",
            "position": int(np.median(places)),
            "spread": int(np.quantile(places, 0.75) - np.quantile(places, 0.25)),
        },
    )
    if not upward or not result.holds:
        return result
    known = changes.rise >= 0
    return unless_a_slope(result, evidence.kept(known), changes.rise[known])
