"""The items that a collector puts into the queue of its thread, beside batches.

RowTarget: the form in which the thread of a collector gives rows to whatever writes them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from ..batch.batch import Batch

Done = Callable[[bool], None]


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


class RowTarget(Protocol):
    """The object that writes: a Writer on this thread, or a WriterProcess. Its methods do not raise."""

    @property
    def is_gone(self) -> bool:
        """True if it has ended without being told to, so that another has to be made."""
        ...

    def begin(self) -> None:
        """Makes the run folder."""
        ...

    def take(self, step: int, rows: pa.RecordBatch, settled: Callable[[], None]) -> None:
        """Takes rows of a step. Calls `settled` when they no longer wait in a queue."""
        ...

    def take_reading(self, step: int, name: str, rows: pa.RecordBatch) -> None:
        """Takes rows of a reading of rows that it took last."""
        ...

    def catch_up(self) -> None:
        """Writes ended steps that wait for others. Called when nothing else waits."""
        ...

    def event(self, kind: str, step: int, note: str) -> None:
        """Writes an event to the commit log."""
        ...

    def say(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Writes entries to the commit log."""
        ...

    def say_dropped(self) -> None:
        """Writes what was dropped since the last call to the commit log."""
        ...

    def finish(self, done: Done) -> None:
        """Has everything written, then calls `done` with whether nothing waits in memory."""
        ...

    def close(self) -> None:
        """Finishes, and returns when that is done."""
        ...

    def let_go(self) -> None:
        """Gives it nothing more, and waits for nothing: a process writes what it has and ends by itself."""
        ...
