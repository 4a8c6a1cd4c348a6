"""The items that a collector puts into the queue of its thread, beside batches, and Backlog, the bounds of what waits in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..batch.batch import Batch
from ..process.counts import OneAtATime

Done = Callable[[bool], None]


def void(*_: object) -> None:
    """Does nothing, where nobody waits for a call."""


@dataclass(frozen=True)
class EventItem:
    """An event; the queue keeps its place between the batches."""

    kind: str
    step: int
    note: str


@dataclass(frozen=True)
class WeightsItem:
    """Digests of the weights of a version, of the trainer (no replica) or of an engine."""

    step: int
    version: int
    replica: str | None
    digests: Mapping[str, str]
    """Tensor -> digest."""

    @property
    def bytes(self) -> int:
        """Memory that it holds while it waits, about."""
        return 250 * len(self.digests)


@dataclass(frozen=True)
class DroppedItem:
    """The ledger holds dropped sequences that the commit log does not report yet."""


@dataclass(frozen=True)
class BeginItem:
    """Asks for the run folder to be made before there is anything to write."""


@dataclass(frozen=True)
class FlushItem:
    """Asks for everything before it to be written."""

    done: Done
    """Takes whether nothing waits in memory afterwards."""


@dataclass(frozen=True)
class StopItem:
    """Asks for everything before it to be written, and ends the thread."""


Item = Batch | EventItem | WeightsItem | DroppedItem | BeginItem | FlushItem | StopItem
"""Anything that waits in the queue."""


LEAST_BYTES = 1 << 16
"""A batch counts for so many bytes at least: the writer works as long on a tiny step, and its objects take memory, too."""


class Backlog:
    """Counts the batches that wait for the writer. Their number and bytes are bounded, but one batch alone may be of any size.

    A tiny batch counts for LEAST_BYTES, or for a thousandth of a smaller queue.
    """

    def __init__(self, batches: int, nbytes: int) -> None:
        self._most_batches, self._most_bytes = batches, nbytes
        self._least = min(LEAST_BYTES, nbytes // 1024)
        self._held: dict[object, int] = {}
        self._bytes = 0
        self._changes = OneAtATime()

    def __len__(self) -> int:
        return len(self._held)

    def has_room(self, nbytes: int) -> bool:
        size = max(nbytes, self._least)
        return not self._held or (len(self._held) < self._most_batches and self._bytes + size <= self._most_bytes)

    def hold(self, nbytes: int) -> Callable[[], None]:
        """Counts a batch as waiting until the returned function is called."""
        key = object()
        self._changes.do(lambda: self._add(key, max(nbytes, self._least)))
        return lambda: self._changes.do(lambda: self._remove(key))

    @property
    def pressure(self) -> float:
        """Filled part of the queue, 0 to 1."""
        return max(len(self._held) / (self._most_batches + 1), self._bytes / max(1, self._most_bytes))

    def _add(self, key: object, nbytes: int) -> None:
        self._held[key] = nbytes
        self._bytes += nbytes

    def _remove(self, key: object) -> None:
        self._bytes -= self._held.pop(key, 0)
