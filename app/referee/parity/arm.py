"""A scorer's readings of the same tokens, by twos that differ in one circumstance, such as the size of a batch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from ..inputs import Sequence_
from .comparison import Columns

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
