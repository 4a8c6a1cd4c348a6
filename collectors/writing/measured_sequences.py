"""Which sequences of the newest steps were measured, for steps whose rows take too much memory to keep until the step has ended.

A sequence may come again, with the policy that an update made of it: then it can only be measured beside its earlier rows.
"""

from typing import Any

_STEPS = 8
_MOST = 1 << 20
"""Steps, and sequences of each, that are remembered: some 60 MB at the most where every step has so many."""


class MeasuredSequences:
    """Knows sequences by a hash of their id: two that share one cost statistics that a reader then computes of the rows."""

    def __init__(self) -> None:
        self._known: dict[int, set[int]] = {}
        self._given_up: dict[int, None] = {}

    def is_given_up(self, step: int) -> bool:
        """Whether a reader is to compute the statistics of the step."""
        return step in self._given_up

    def may_measure(self, step: int, sequence_ids: Any, *, alone: bool) -> bool:
        """Whether rows with these ids, an Arrow column, can be measured. alone: without earlier rows of the step."""
        if step in self._given_up:
            return False
        known, ids = self._known.pop(step, set[int]()), {hash(each) for each in sequence_ids.to_pylist()}
        if alone and (len(known) >= _MOST or not known.isdisjoint(ids)):
            self._given_up[step] = None
            while len(self._given_up) > _MOST // 1024:
                self._given_up.pop(next(iter(self._given_up)))
            return False
        self._known[step] = known | ids if known else ids
        while len(self._known) > _STEPS:
            self._known.pop(next(iter(self._known)))
        return True
