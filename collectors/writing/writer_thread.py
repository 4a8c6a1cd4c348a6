"""WriterThread: a bounded queue, and the daemon thread that turns its batches into rows and gives them to the writer.

The trainer's thread takes no lock here (one_at_a_time.py says why): a signal handler may interrupt it in the middle of a `put`,
and may itself call `put`.
"""

import signal
import threading
import time
from collections.abc import Callable
from queue import Empty, SimpleQueue

from ..batch.batch import Batch
from ..batch.batch_rows import BatchRows
from ..process.counts import Ledger, reason_of
from ..process.notice import warn
from .backlog import Backlog
from .queue_items import BeginItem, DroppedItem, EventItem, FlushItem, Item, StopItem, WeightsItem
from .row_target import RowTarget
from .step_patience import StepPatience
from .weight_lines import WeightLines

IDLE_SECONDS = 30.0
"""After so long without anything to do, buffered rows are written at the latest: a process that is killed loses no more."""
_EVENTS = 10_000  # waiting events and flushes beside the batches; some megabytes


def void(result: object) -> None:
    """Drops a result."""


class WriterThread:
    """Starts its thread with the first item. `make_target` and `make_rows` are called on the thread."""

    def __init__(
        self,
        make_rows: Callable[[], BatchRows],
        make_target: Callable[[], RowTarget],
        ledger: Ledger,
        *,
        backlog: Backlog,
    ) -> None:
        self._make_rows, self._make_target, self._ledger = make_rows, make_target, ledger
        self._backlog = backlog
        self._items: SimpleQueue[tuple[Item, Callable[[], None]]] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starts: dict[str, object] = {}
        self._is_stopped = self._is_abandoned = self._is_busy = False
        self._has_moved = threading.Event()
        self._patience, self._holds_rows = StepPatience(), False
        self._weight_lines = WeightLines()
        self._lost = 0  # sequences dropped before the last answer of `flush`
        self.progress = 0
        """Grows with each item that is handled, and each time a writer's process reports that it is at work."""

    @property
    def is_stopped(self) -> bool:
        """True if no further batch is taken."""
        return self._is_stopped

    @property
    def is_alive(self) -> bool:
        """True if the thread still runs."""
        return self._thread is not None and self._thread.is_alive()

    def has_room(self, nbytes: int) -> bool:
        """True if a batch of this size may be put."""
        return self._backlog.has_room(nbytes)

    @property
    def pressure(self) -> float:
        """Filled part of the queue, 0 to 1."""
        return self._backlog.pressure

    def wait(self) -> None:
        """Waits a moment for room in the queue."""
        self._has_moved.clear()
        self._has_moved.wait(0.1)

    def moved(self) -> None:
        """Records progress, and wakes a caller that waits for room."""
        self.progress += 1
        self._has_moved.set()

    def put(self, item: Item) -> bool:
        """False if the thread was stopped, if far too much waits, or if no thread can be started now."""
        most = _EVENTS + len(self._backlog)
        if self._is_stopped or self._items.qsize() >= most or not self._has_begun():
            return False
        if isinstance(item, Batch):
            self._ledger.offer(item.offered)
            self._items.put((item, self._backlog.hold(item.bytes)))
        elif isinstance(item, WeightsItem):
            self._items.put((item, self._backlog.hold(item.bytes)))
        else:
            self._items.put((item, _nothing))
        return True

    def flush(self, timeout: float | None) -> bool:
        """Has everything written that was put so far.

        False if that took longer than `timeout`, if some of it waits in memory, or if some was lost since the last answer.
        """
        answer, has_come = [False], threading.Event()

        def done(nothing_waits: bool) -> None:
            answer[0] = nothing_waits
            has_come.set()

        if self._starts and self.put(FlushItem(done)):
            if not has_come.wait(timeout):
                return False
        else:
            answer[0] = not self.is_alive
        lost, before = self._ledger.counts.sequences.dropped, self._lost
        self._lost = lost
        return answer[0] and lost == before

    def stop(self, timeout: float | None) -> bool:
        """Has everything written and ends the thread; False once nothing has come of that for `timeout` seconds."""
        was_stopped, self._is_stopped = self._is_stopped, True
        if self._starts and not was_stopped:
            self._items.put((StopItem(), _nothing))
        while self._thread is not None and self._thread.is_alive():
            before = self.progress
            self._thread.join(timeout)
            if self._thread.is_alive() and self.progress == before:
                return False
        return True

    def abandon(self) -> None:
        """Gives up what waits. The thread ends as soon as the call returns that it is in."""
        self._is_abandoned = True

    def _has_begun(self) -> bool:
        """Starts the thread if there is none. False if it cannot be started, because of a limit on processes; a later call tries
        again."""
        mine = object()
        if self._starts.setdefault("first", mine) is not mine:
            return True  # an earlier call, perhaps one that this one has interrupted, starts the thread
        thread = threading.Thread(target=self._run, name="ratioscope-writer", daemon=True)
        try:
            thread.start()
        except (RuntimeError, MemoryError):
            self._starts.clear()
            return False
        self._thread = thread
        return True

    def _run(self) -> None:
        _ignore_broken_pipes()
        rows, target = self._make_rows(), self._make_target()
        while True:
            self._is_busy = False
            item, settled = self._next()
            self._is_busy = True
            self.moved()
            try:
                if target.is_gone:
                    target.let_go()
                    target, self._weight_lines = self._make_target(), WeightLines()
                    target.say_dropped()  # what its predecessor lost, before anything else can end it
                self._handle(item, settled, rows, target)
                if self._items.empty() and not self._is_abandoned:
                    target.catch_up()
            except Exception as error:
                # Expected failures are counted elsewhere. This keeps the thread alive through the others.
                settled()
                if isinstance(item, FlushItem):
                    item.done(False)
                if self._ledger.fail("writer"):
                    warn("the writer failed; it goes on with the next batch: %s", reason_of(error))
            if isinstance(item, StopItem):
                return

    def _next(self) -> tuple[Item, Callable[[], None]]:
        """The next item; one that has buffered rows written, if none comes while they wait for more of their step."""
        try:
            return self._items.get(timeout=self._patience.seconds(IDLE_SECONDS) if self._holds_rows else IDLE_SECONDS)
        except Empty:
            return FlushItem(void), _nothing

    def _handle(self, item: Item, settled: Callable[[], None], rows: BatchRows, target: RowTarget) -> None:
        if self._is_abandoned and not isinstance(item, StopItem):
            settled()
            return
        match item:
            case Batch():
                self._holds_rows = True
                self._patience.came(item.step, time.monotonic())
                records, readings = rows.of(item)
                if records is None:
                    settled()
                    return
                target.take(item.step, records, settled)
                for name, reading in readings.items():
                    target.take_reading(item.step, name, reading)
            case EventItem():
                target.event(item.kind, item.step, item.note)
            case WeightsItem():
                target.say(self._weight_lines.of(item.step, item.version, item.replica, item.digests))
                settled()
            case DroppedItem():
                target.say_dropped()
            case BeginItem():
                target.begin()
            case FlushItem():
                self._holds_rows = False
                target.finish(item.done)
            case StopItem():
                (target.let_go if self._is_abandoned else target.close)()


def _nothing() -> None:
    pass


def _ignore_broken_pipes() -> None:
    """Blocks SIGPIPE on this thread: the signal goes to the thread that wrote, and a trainer may have made it deadly again."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
