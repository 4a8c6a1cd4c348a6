"""RowTarget: the form in which the thread of a collector gives rows to whatever writes them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa

Done = Callable[[bool], None]


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
