"""Two columns of log-probs of the same tokens, compared: distances with errors, equal bits, and the first difference."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Singles

from ..distance import Distance, distance

Columns = Sequence[Singles]
"""The log-probs of each sequence, in nats."""


@dataclass(frozen=True)
class Comparison:
    """The difference of a later column from an earlier one."""

    distance: Distance
    sequences: int
    """Sequences that were compared."""
    equal: float
    """Share of tokens whose two log-probs are finite and equal to the last bit of float32; NaN without a token."""
    first: tuple[int, int] | None
    """(sequence, place in its response) of the first token that is not, both from 0; None if all are equal."""
    probability: float
    """mean |exp(later) - exp(earlier)|, 1: the probability difference of verl; NaN without a token."""
    multiplicative: float
    """mean exp(|x|), 1: NeMo-RL's token_mult_prob_error; NaN without a token."""


def compared(earlier: Columns, later: Columns) -> Comparison:
    """The difference of two columns. Tokens with a log-prob that is not finite are set aside, and equal to none.

    >>> one = [np.array([-1, -2], np.float32), np.array([-3], np.float32)]
    >>> compared(one, one).equal, compared(one, [one[0], one[1] - 1]).first
    (1.0, (1, 0))
    """
    sequence = np.repeat(np.arange(len(earlier)), [len(own) for own in earlier])
    place = np.concatenate([np.arange(len(own)) for own in earlier]) if len(earlier) else np.empty(0, np.int64)
    a, b = (np.concatenate([*own, np.empty(0, np.float32)]).astype(np.float32) for own in (earlier, later))
    known = np.isfinite(a) & np.isfinite(b)
    same = known & (a.view(np.uint32) == b.view(np.uint32))
    with np.errstate(invalid="ignore"):
        x = b.astype(np.float64) - a.astype(np.float64)
    apart = np.flatnonzero(~same)
    first = (int(sequence[apart[0]]), int(place[apart[0]])) if len(apart) else None
    some, size = bool(known.any()), np.abs(x[known])
    return Comparison(
        distance(x, sequence),
        len(earlier),
        float(same.mean()) if len(a) else float("nan"),
        first,
        float(np.abs(np.exp(b[known].astype(np.float64)) - np.exp(a[known].astype(np.float64))).mean())
        if some
        else float("nan"),
        float(np.exp(size).mean()) if some else float("nan"),
    )
