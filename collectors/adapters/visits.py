"""Visits of a trainer to the same sequences within a step, such as those of several epochs.

Facts that are large and do not change, a prompt's tokens for example, are logged at the first visit only.
"""

from collections import Counter
from collections.abc import Sequence


class Visits:
    """Counts visits to groups of rows in the newest step."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._counts: Counter[str] = Counter()

    def earlier(self, step: int, sequence_id: str) -> int:
        """The number of earlier visits in this step to the rows that begin with this sequence."""
        if step != self._step:
            self._step, self._counts = step, Counter()
        self._counts[sequence_id] += 1
        return self._counts[sequence_id] - 1


class FirstVisits:
    """Remembers the sequences of the newest step."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._seen: set[str] = set()

    def is_one(self, step: int, sequence_ids: Sequence[str] | None) -> bool:
        """True if none of the sequences was visited in this step before; True for sequences without ids."""
        if step != self._step:
            self._step, self._seen = step, set()
        if sequence_ids is None:
            return True
        is_new = self._seen.isdisjoint(sequence_ids)
        self._seen.update(sequence_ids)
        return is_new
