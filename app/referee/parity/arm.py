"""An arm: two readings of the same tokens by one scorer that differ in one circumstance, such as the size of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ..inputs import Sequence_
from .comparison import Columns

TOGETHER = 64
"""Sequences of the batch that is compared with a sequence alone, unless another number is given."""
SAMPLED = 64
"""Tokens of a response that is sampled, at most, unless another number is given. A convention."""
Known = dict[str, Columns]
"""Readings of the given tokens that this scorer has made already, by a name."""
Wanted = Literal["within", "moved", "equal", "any"]


@dataclass(frozen=True)
class Plan:
    """The settings of all arms."""

    together: int = TOGETHER
    """Sequences of a batch."""
    sampled: int = SAMPLED
    """Tokens of a sampled response, at most."""


@dataclass(frozen=True)
class Pair:
    """Two readings of the same tokens."""

    earlier: str
    """The circumstance of the first, for a reader."""
    later: str
    """The circumstance of the second."""
    columns: tuple[Columns, Columns]
    """Their log-probs."""
    sequences: Sequence[Sequence_] | None = None
    """The tokens; None: those that all scorers read."""
    doubt: str = ""
    """A remark on what the pair stands for."""
    wanted: Wanted = "within"
    """The second has to be within the limits, to be moved, to be equal to the first, or is shown alone."""


Arm = Callable[[Any, Sequence[Sequence_], Plan, Known], list[Pair] | str]
"""A function of (scorer, tokens, plan, its readings so far) that gives pairs, or in words why there is none."""


def columns(scorer: Any, sequences: Sequence[Sequence_], how: Any = None) -> Columns:
    """The log-probs of each sequence, in their order."""
    found = dict(scorer.scores(sequences, how))
    return [found[index] for index in range(len(sequences))]


def once(known: Known, name: str, made: Callable[[], Columns]) -> Columns:
    """The reading of this name, made the first time."""
    if name not in known:
        known[name] = made()
    return known[name]
