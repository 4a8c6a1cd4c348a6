"""WriterThread: a bounded queue, and the daemon thread that turns its batches into rows and gives them to the writer.

The trainer's thread takes no lock here (OneAtATime has the reason): a signal handler may interrupt it in the middle of a `put`,
and may itself call `put`.
The wait of rows in memory for more rows of their step. Readers learn of a step as soon as its rows are written.
Lines of a commit log for digests of weights. A table of names is written once; a sync adds eight characters per tensor.

Equal weights cost 0.3 kB, because the digests of their tensors are written once. A writer that has written MOST_BYTES of them
gives those of every eighth version only, then of every 64th. The digest of all tensors always stands on record, and tells which
version an engine holds.
"""

import hashlib
import math
import re
import signal
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from queue import Empty, SimpleQueue
from typing import Any

from ratioscope.layout import EVENT, WEIGHT_NAMES, WEIGHTS

from ..batch.batch import Batch
from ..batch.batch_rows import BatchRows
from ..process.counts import Ledger, reason_of
from ..process.notice import warn
from .queue_items import Backlog, BeginItem, DroppedItem, EventItem, FlushItem, Item, StopItem, WeightsItem, void
from .writer import Writer
from .writer_process import WriterProcess

IDLE_SECONDS = 30.0
"""After so long without anything to do, buffered rows are written at the latest: a process that is killed loses no more."""
_EVENTS = 10_000  # waiting events and flushes beside the batches; some megabytes

LEAST_SECONDS = 1.0
"""A trainer that logs a step in one call needs no wait; a second more costs a reader nothing that it would notice."""
TIMES = 4.0
"""Longest interval so far between two batches of one step, times this: a step whose batches come late is rarely cut in two."""

MOST_ENTRIES = 2048
"""Most entries of a table of names. With more tensors, entries share a name in which numbers are *, the last number first."""
MOST_BYTES = 8 << 20
"""The most bytes of digests of single tensors, until they become rarer by a factor of RARER."""
RARER = 8
_REMEMBERED = 63
LONGEST_NAME = 120
"""A longer name keeps its end, and a digest of all of it: a line of 2048 names stays shorter than the longest that is read."""
OURS = "ratioscope"
_OURS = re.compile(r"(\w+\[[\d,]*\]) [0-9a-f]{16}")
_LAST_NUMBER = re.compile(r"\d+(?=\D*$)")


RowTarget = Writer | WriterProcess
"""The object that writes: on this thread, or in a process of its own. Its methods do not raise."""


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
        self._is_abandoned = self._is_busy = self.is_stopped = False
        """is_stopped: True if no further batch is taken."""
        self._has_moved = threading.Event()
        self._patience, self._holds_rows = StepPatience(), False
        self._weight_lines = WeightLines()
        self._lost = 0  # sequences dropped before the last answer of `flush`
        self.progress = 0
        """Grows with each item that is handled, and each time a writer's process reports that it is at work."""

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
        if self.is_stopped or self._items.qsize() >= most or not self._has_begun():
            return False
        if isinstance(item, Batch):
            self._ledger.offer(item.offered)
            self._items.put((item, self._backlog.hold(item.bytes)))
        elif isinstance(item, WeightsItem):
            self._items.put((item, self._backlog.hold(item.bytes)))
        else:
            self._items.put((item, void))
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
        was_stopped, self.is_stopped = self.is_stopped, True
        if self._starts and not was_stopped:
            self._items.put((StopItem(), void))
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
        # SIGPIPE goes to the thread that wrote, and a trainer may have made it deadly again
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
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
            return FlushItem(void), void

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
                target.say([{"kind": EVENT, "event": item.kind, "step": item.step, "note": item.note}])
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


class StepPatience:
    """Learns from the intervals between the batches of each step. Rows that come after the wait are written as a further part."""

    def __init__(self) -> None:
        self._step: int | None = None
        self._came = math.nan
        self._longest = 0.0
        self._knows_a_step = False

    def came(self, step: int, now: float) -> None:
        """A batch of this step came. now: seconds on any clock that never goes back."""
        if step == self._step:
            self._longest = max(self._longest, now - self._came)
        elif self._step is not None:
            self._knows_a_step = True
        self._step, self._came = step, now

    def seconds(self, most: float) -> float:
        """Seconds to wait for the next batch, at most `most`: that, until one step has been seen whole."""
        return min(most, max(LEAST_SECONDS, TIMES * self._longest)) if self._knows_a_step else most


class WeightLines:
    """Makes the lines of one writer, and remembers the tables of names that it has written."""

    def __init__(self) -> None:
        self._tables: set[str] = set()
        self._written: list[str] = []  # digests whose entries are on record
        self._bytes = 0

    def of(
        self, step: int, version: int, replica: str | None, digests: Mapping[str, str], *, by: str = ""
    ) -> list[dict[str, Any]]:
        """The lines for the weights of a version. replica: the engine that holds them; None: the trainer. by: see WEIGHTS."""
        entries = _entries(digests)
        listed = [[name, form] for name, form, _ in entries]
        names = _hash("\n".join("\t".join(pair) for pair in listed))
        by = by or (OURS if digests and all(map(_OURS.fullmatch, digests.values())) else "another")
        whole = _hash("\n".join(f"{name}\t{digest}" for name, digest in sorted(digests.items())))
        line: dict[str, Any] = {
            "kind": WEIGHTS, "step": step, "version": version, "replica": replica, "tensors": len(digests), "digest": whole,
            "by": by, "names": names,
        }  # fmt: skip
        lines = [] if names in self._tables else [{"kind": WEIGHT_NAMES, "names": names, "entries": listed}]
        self._tables.add(names)
        if whole not in self._written and version % RARER ** (self._bytes // MOST_BYTES) == 0:
            self._written = [*self._written[-_REMEMBERED:], whole]
            line["each"] = "".join(short for _, _, short in entries)
            self._bytes += 8 * len(entries)
        return [*lines, line]


def _entries(digests: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, dtype and shape, eight characters of the digest) by name, at most MOST_ENTRIES."""
    groups: dict[str, list[str]] = {}
    for name, group in zip(digests, _groups(list(digests)), strict=True):
        groups.setdefault(group, []).append(name)
    return sorted((_name(group), *_entry([digests[name] for name in names])) for group, names in groups.items())


def _entry(texts: list[str]) -> tuple[str, str]:
    forms = [found[1] if (found := _OURS.fullmatch(text)) else "" for text in texts]
    one = forms[0] if len(texts) == 1 else f"{len(texts)} tensors {_hash(' '.join(forms))}"
    return one[:80], _short("\n".join(texts))


def _name(name: str) -> str:
    plain = name.encode("ascii", "replace").decode()
    return plain if plain == name and len(name) <= LONGEST_NAME else f"{plain[-LONGEST_NAME + 20 :]}~{_hash(name)}"


def _groups(names: list[str]) -> list[str]:
    """A group for each name, at most MOST_ENTRIES: the name itself, else with its last numbers replaced by *, else one of all."""
    groups = names
    while len(set(groups)) > MOST_ENTRIES:
        fewer = [_LAST_NUMBER.sub("*", group) for group in groups]
        if fewer == groups:
            return ["*"] * len(names)
        groups = fewer
    return groups


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _short(text: str) -> str:
    return urlsafe_b64encode(hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=6).digest()).decode()
