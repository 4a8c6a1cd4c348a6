"""The measured sequences of the newest steps, for steps whose rows take too much memory to be kept until the step ends.

A sequence may come again with log-probs of another policy. It can then only be measured together with its earlier rows.
"""

from typing import Any

from ..batch.breaths import listed

_STEPS = 8
_MOST = 1 << 20
"""Number of steps that are remembered, and of sequences of each: at most some 60 MB."""


class MeasuredSequences:
    """Remembers sequences by a hash of their id. If two share a hash, a reader has to compute the statistics from rows."""

    def __init__(self) -> None:
        self._known: dict[int, set[int]] = {}
        self._given_up: dict[int, None] = {}

    def is_given_up(self, step: int) -> bool:
        """True if the statistics of the step are left to the reader, who computes them from rows."""
        return step in self._given_up

    def may_measure(self, step: int, sequence_ids: Any, *, alone: bool) -> bool:
        """True if rows with these ids, an Arrow column, can be measured. alone: no earlier rows of the step are at hand."""
        if step in self._given_up:
            return False
        known, ids = self._known.pop(step, set[int]()), set(map(hash, listed(sequence_ids)))
        if alone and (len(known) >= _MOST or not known.isdisjoint(ids)):
            self._given_up[step] = None
            while len(self._given_up) > _MOST // 1024:
                self._given_up.pop(next(iter(self._given_up)))
            return False
        self._known[step] = known | ids if known else ids
        while len(self._known) > _STEPS:
            self._known.pop(next(iter(self._known)))
        return True
