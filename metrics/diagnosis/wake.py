"""The wake of single tokens: one that the trainer hardly expects, clean tokens before it, and bad ones right after it.

An id that was changed before the trainer scored it is unlikely there, and the tokens behind it are read after another id. A token
that is off by itself, such as one on another route or after a ban, has no wake: before it the gap is as large as after it.
"""

from typing import NamedTuple

import numpy as np

from ratioscope.arrays import Booleans, Integers

from .evidence import Evidence, once
from .subset_faults import CLEAR, log_sizes

UNEXPECTED, MOST_UNEXPECTED = 2.0, 0.1
"""A token whose log-prob the trainer puts so many nats lower may be another id; a larger share is a gap of all tokens."""
BESIDE = 3
"""So many tokens on either side of it are compared."""
LEAST_UNITS, LEAST_RISE = 8, 0.4
"""Sequences with such a token, and the rise of log sizes from the tokens before it to those behind it. Conventions."""
FAR, TWO_SIDED = 0.1, 0.15
"""Another context moves tokens to both sides: of those in the wake that are off by FAR nats, so many on the rarer side of 0."""


class Wake(NamedTuple):
    """Tokens with a wake."""

    first: Integers
    """Index of the first one of each sequence, -1 without one, shape (rows,)."""
    later: Booleans
    """True from there on to the end of the sequence, shape (tokens,)."""


@once
def wake(evidence: Evidence) -> Wake | None:
    """The tokens that the trainer hardly expects, if they have a wake; None if they have none, or are too few or too many."""
    size, row, place, x = log_sizes(evidence), evidence.row, evidence.position, evidence.log_ratio
    inner = np.arange(BESIDE, len(evidence) - BESIDE)
    before, after = inner - BESIDE, inner + BESIDE
    is_whole = (row[before] == row[after]) & (place[after] - place[before] == 2 * BESIDE)
    events = inner[is_whole & (x[inner] < -UNEXPECTED)]
    if not len(events) or evidence.mean(x < -UNEXPECTED) > MOST_UNEXPECTED:
        return None
    near = np.arange(1, BESIDE + 1)
    behind = events[:, None] + near
    rise = size[behind].mean(axis=1) - size[events[:, None] - near].mean(axis=1)
    off = x[behind][np.abs(x[behind]) > FAR]
    is_two_sided = len(off) > 0 and min((off > 0).mean(), (off < 0).mean()) > TWO_SIDED
    units, unit = np.unique(evidence.units[events], return_inverse=True)
    squares = (np.bincount(unit, rise - rise.mean()) ** 2).sum()
    error = float(np.sqrt(squares * len(units) / max(len(units) - 1, 1))) / len(rise)
    if len(units) < LEAST_UNITS or not is_two_sided or rise.mean() < max(CLEAR * error, LEAST_RISE):
        return None
    first = np.full(evidence.rows, len(evidence))
    np.minimum.at(first, evidence.row_codes[events], events)
    later = np.arange(len(evidence)) >= first[evidence.row_codes]
    return Wake(np.where(first < len(evidence), first, -1), later)
