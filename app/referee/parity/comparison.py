"""Two columns of log-probs of the same tokens, compared: distances with errors, equal bits, and the first difference.

An arm is a pair of such readings by one scorer, which differ in one circumstance.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from ratioscope.arrays import Floats, Singles

from ..distance import Distance, distance
from ..inputs import Sequence_

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
    places = [(index, place) for index, own in enumerate(earlier) for place in range(len(own))]
    one, two = (np.concatenate([*own, np.empty(0, np.float32)]).astype(np.float32) for own in (earlier, later))
    known = np.isfinite(one) & np.isfinite(two)
    same = known & (one.view(np.uint32) == two.view(np.uint32))
    a, b = (np.where(known, own, np.nan).astype(np.float64) for own in (one, two))
    return Comparison(
        distance(b - a, np.array([index for index, _ in places], np.int64)),
        len(earlier),
        _mean(same.astype(np.float64)),
        next((place for place, is_same in zip(places, same, strict=True) if not is_same), None),
        _mean(np.abs(np.exp(b) - np.exp(a))[known]),
        _mean(np.exp(np.abs(b - a)[known])),
    )


def _mean(values: Floats) -> float:
    return float(values.mean()) if len(values) else float("nan")


Wanted = Literal["within", "moved", "equal", "any"]


@dataclass(frozen=True)
class Pair:
    """Two readings of the same tokens."""

    earlier: str
    """The circumstance of the first, for a reader."""
    later: str
    """The circumstance of the second."""
    columns: tuple[Columns, Columns]
    """Their log-probs."""
    is_of_others: bool = False
    """True if the tokens are not those that all scorers read."""
    doubt: str = ""
    """A remark on what the pair stands for."""
    wanted: Wanted = "within"
    """The second has to be within the limits, to be moved, to be equal to the first, or is shown alone."""


@dataclass(frozen=True)
class Reader:
    """A scorer, the tokens that it reads, and the settings of its arms."""

    scorer: Any
    """An Engine, a Referee or a Command."""
    sequences: Sequence[Sequence_]
    together: int = 64
    """Sequences of the batch that is compared with a sequence alone."""
    sampled: int = 64
    """Tokens of a response that is sampled, at most."""
    known: dict[str, Columns] = field(default_factory=dict)
    """Readings that it has made already, by a name."""

    def once(self, name: str = "", how: Any = None) -> Columns:
        """The reading of this name, made the first time."""
        if name not in self.known:
            self.known[name] = columns(self.scorer, self.sequences, how)
        return self.known[name]

    def batched(self, scorer: Any, how: Any = None) -> Columns:
        """The log-probs in batches of `together`."""
        starts = range(0, len(self.sequences), self.together)
        parts = (self.sequences[start : start + self.together] for start in starts)
        return [own for part in parts for own in columns(scorer, part, how)]


Arm = Callable[[Reader], list[Pair] | str]
"""A function of a reader that gives pairs, or in words why there is none."""


def columns(scorer: Any, sequences: Sequence[Sequence_], how: Any = None) -> Columns:
    """The log-probs of each sequence, in their order."""
    found = dict(scorer.scores(sequences, how))
    return [found[index] for index in range(len(sequences))]
