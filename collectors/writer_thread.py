"""A bounded queue and the daemon thread that empties it into a Writer. The thread begins with the first item."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from .batch import Batch
from .counts import Ledger
from .writer import Writer

logger = logging.getLogger("ratioscope")

IDLE_SECONDS = 30.0
"""Without anything to do for so long, what is buffered is written: a process that is killed loses no more."""
_EVENTS = 10_000  # waiting events and flushes; some megabytes


@dataclass(frozen=True)
class EventItem:
    """An event, in its place between the batches."""

    kind: str
    step: int
    note: str


@dataclass(frozen=True)
class GapItem:
    """The ledger holds gaps that the commit log does not tell of."""


@dataclass
class _Flush:
    done: threading.Event
    is_durable: bool = False


@dataclass(frozen=True)
class _Stop:
    pass


Item = Batch | EventItem | GapItem | _Flush | _Stop


class WriterThread:
    """`make_writer` is called on the thread. Waiting batches are at most `batches`, and `nbytes` together."""

    def __init__(self, make_writer: Callable[[], Writer], ledger: Ledger, *, batches: int, nbytes: int) -> None:
        self._make_writer, self._ledger = make_writer, ledger
        self._most_batches, self._most_bytes = batches, nbytes
        self._items: deque[Item] = deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether nothing more is taken."""
        return self._is_stopped

    def has_room(self, nbytes: int) -> bool:
        """Whether a batch of this size may be put. Any batch may while nothing waits."""
        with self._changed:
            return not self._items or (
                len(self._items) < self._most_batches and self._bytes + nbytes <= self._most_bytes
            )

    @property
    def pressure(self) -> float:
        """How full the queue is, 0 to 1."""
        with self._changed:
            return max(len(self._items) / (self._most_batches + 1), self._bytes / max(1, self._most_bytes))

    def put(self, item: Item) -> bool:
        """False if the thread was stopped, or if far too much waits."""
        with self._changed:
            if self._is_stopped or len(self._items) >= self._most_batches + _EVENTS:
                return False
            self._append(item)
            if isinstance(item, Batch):
                self._ledger.offer(item.offered)  # in here, so that whoever stops the thread sees what is pending
            return True

    def flush(self, timeout: float | None) -> bool:
        """Has what was put so far written; False if it was not in time, or if something still waits in memory."""
        flush = _Flush(threading.Event())
        if self._thread is None or not self.put(flush):
            return not self.is_alive
        return flush.done.wait(timeout) and flush.is_durable

    def stop(self, timeout: float | None) -> bool:
        """Has everything written and ends the thread. What is not written in time is counted as dropped: False."""
        with self._changed:
            if not self._is_stopped and self._thread is not None:
                self._append(_Stop())
            self._is_stopped = True
        if self._thread is not None:
            self._thread.join(timeout)
        return not self.is_alive

    def abandon(self) -> None:
        """Lets go of what waits; the thread ends when whatever holds it up lets go of it."""
        with self._changed:
            self._items.clear()
            self._items.append(_Stop())

    @property
    def is_alive(self) -> bool:
        """Whether the thread still runs."""
        return self._thread is not None and self._thread.is_alive()

    def _append(self, item: Item) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="ratioscope-writer", daemon=True)
            thread.start()
            self._thread = thread
        self._items.append(item)
        self._bytes += item.bytes if isinstance(item, Batch) else 0
        self._changed.notify()

    def _run(self) -> None:
        writer = self._make_writer()
        while True:
            item = self._next()
            try:
                _handle(item, writer)
            except Exception:  # the writer counts what it foresees; this keeps the thread alive through the rest
                if self._ledger.fail("writer"):
                    logger.exception("the writer failed; it goes on with the next batch")
            if isinstance(item, _Stop):
                return

    def _next(self) -> Item:
        """The next item; where none comes for a while, one that has what is buffered written."""
        with self._changed:
            if not self._items and not self._changed.wait(IDLE_SECONDS):
                return _Flush(threading.Event())
            while not self._items:
                self._changed.wait()
            item = self._items.popleft()
            self._bytes -= item.bytes if isinstance(item, Batch) else 0
            return item


def _handle(item: Item, writer: Writer) -> None:
    match item:
        case Batch():
            writer.take(item)
        case EventItem():
            writer.event(item.kind, item.step, item.note)
        case GapItem():
            writer.say_gaps()
        case _Flush():
            try:
                item.is_durable = not writer.finish()
            finally:
                item.done.set()
        case _Stop():
            writer.close()
