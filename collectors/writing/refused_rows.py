"""RefusedRows: sequences whose token rows could not be written, until it is known whether their statistics are on disk."""

from collections.abc import Callable

from ..process.counts import Dropped, Ledger
from .sink import Unsaved

NOT_WRITTEN = "not written"


class RefusedRows:
    """Belongs to one writer. Until they are settled these sequences are pending.

    drop: counts sequences that are neither in rows nor in statistics: step, sequences, reason, detail, tokens.
    """

    def __init__(self, ledger: Ledger, drop: Callable[[int, int, str, str, int], None]) -> None:
        self._ledger, self._drop = ledger, drop
        self._waiting: list[Dropped] = []

    def add(self, dropped: Dropped) -> None:
        """Takes sequences whose rows were refused; their statistics may still be written."""
        self._waiting.append(dropped)

    def settle(self, found: Unsaved, *, at_last: bool = False) -> None:
        """Counts the sequences whose statistics are known to be on disk, or lost.

        at_last: the writer closes, so that statistics in memory are lost.
        """
        waiting, self._waiting = self._waiting, []
        for dropped in waiting:
            if dropped.step in found.lost or (at_last and dropped.step in found.steps):
                detail = found.reason or dropped.detail
                self._drop(dropped.step or 0, dropped.sequences, NOT_WRITTEN, detail, dropped.tokens)
            elif dropped.step in found.steps:
                self._waiting.append(dropped)
            else:
                self._ledger.drop(dropped)
