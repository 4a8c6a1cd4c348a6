"""Writer: collects the rows of a step and writes them when the step has ended. Runs in the writer's process or thread.

A step ends when a later step arrives, or when `finish` is called. A part of it is written earlier if more rows would wait
than memory may hold. Small steps that end while more rows wait in the queue are written together. No method raises: rows that
cannot be written are dropped, counted in the ledger with the reason, reported to the user the first time, and noted in the
commit log.
RefusedRows: sequences whose token rows could not be written, until it is known whether their statistics are on disk.
Intake: when the commit log records how many sequences a writer has taken, before their rows are written.

A writer whose process is killed leaves no other count of them. Rows that are written soon cost no line. A step whose rows come
slowly costs a line each time their number has doubled.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from ratioscope.layout import CLOSE, DROPPED, EVENT, TAKEN

from ..batch.records import of_attempt, tokens_of
from ..batch.shared_ids import WANTED, other_samples
from ..process.counts import Dropped, Ledger, reason_of
from .sink import KeepsReadings, RowsOutcome, Sink, StepRows, TakesSteps, Unsaved, outcomes, saved, unsaved
from .step_buffer import SMALL_BYTES, StepBuffer

STATISTICS_ONLY = "in the statistics only"
_LATE = 0.75  # share of the queue above which token rows wait for better times
_UNSAID = 10_000  # lines that wait for the sink to open; some megabytes
_MOST_BYTES = 1 << 28

NOT_WRITTEN = "not written"

FIRST_SECONDS = 0.5
"""Wait of rows before the first step is written: nobody knows yet how long the trainer lives."""
SECONDS = 1.5
"""Later: longer than the least patience with a step (`StepPatience`), so that a step of one call costs no line."""


@dataclass(frozen=True)
class _TakenRows:
    """Rows of a step that were taken out of the buffer."""

    part: StepRows
    tokens: int
    readings: Mapping[str, list[pa.RecordBatch]]


class Writer:
    """Belongs to one thread.

    report: called with a sentence for the user. pressure: returns how full the queue is, 0 to 1. most_bytes: bound of the rows
    that wait for the end of their step, and of the rows of the newest step that are kept to measure further parts of it.
    together: number of ended steps that may wait to be written together, until `catch_up` is called.
    """

    def __init__(
        self,
        make_sink: Callable[[], Sink],
        ledger: Ledger,
        report: Callable[[str], None],
        pressure: Callable[[], float] = lambda: 0.0,
        most_bytes: int = _MOST_BYTES,
        together: int = 1,
    ) -> None:
        self._make_sink, self._ledger, self._report, self._pressure = make_sink, ledger, report, pressure
        self._made_sink: Sink | None = None
        self._most_bytes, self._together = most_bytes, together
        self._buffer = StepBuffer()
        self._current = 0  # the step whose rows came last
        self._written: tuple[int, pa.Table] | None = None
        self._last: tuple[int, RowsOutcome] | None = None  # step that was written last
        self._unsaid: deque[Mapping[str, Any]] = deque(maxlen=_UNSAID)
        self._refused = RefusedRows(ledger, self.drop)
        self._intake = Intake()

    @property
    def is_gone(self) -> bool:
        """False: this writer is in the process that calls it."""
        return False

    def begin(self) -> None:
        """Makes the run folder, if the sink has one."""
        try:
            sink = self._sink
            getattr(sink, "begin", sink.open)()
        except Exception as error:
            self._report(
                f"the run folder cannot be made: {reason_of(error)}. Training goes on; recording begins once it can."
            )

    def take(self, step: int, rows: pa.RecordBatch, settled: Callable[[], None]) -> None:
        """Buffers the rows, and writes the steps before theirs once these are many or large.

        Calls `settled` at once: the rows wait in no queue any more.
        """
        settled()
        self._current = step
        if len(self._ended) >= self._together or self._buffer.bytes(self._ended) > SMALL_BYTES:
            self.catch_up()
        try:
            attempt = self._sink.open()
            self._buffer.add(step, of_attempt(attempt, rows))
            self._intake.hold(rows.num_rows, time.monotonic())
        except Exception as error:
            self.drop(step, rows.num_rows, NOT_WRITTEN, reason_of(error))
        if self._buffer.bytes() > self._most_bytes:
            self.catch_up()
        while self._buffer.bytes() > self._most_bytes:
            self._write([self._buffer.largest])
        self.say_taken()

    def catch_up(self) -> None:
        """Writes the ended steps. Called when nothing waits in the queue that might join them."""
        self._write(self._ended)

    @property
    def unsaid_for(self) -> float | None:
        """Seconds until `say_taken` has something to say, if nothing comes; None if it has nothing."""
        return self._intake.wait(time.monotonic())

    def say_taken(self) -> None:
        """Writes to the commit log how many sequences were taken, if some wait for long: a killed writer leaves no more."""
        wait = self.unsaid_for
        if wait is not None and wait <= 0:
            self._intake.say()
            self._say({"kind": TAKEN, "step": max(self._buffer.steps), **asdict(self._ledger.counts.sequences)})

    def take_reading(self, step: int, name: str, rows: pa.RecordBatch) -> None:
        """Buffers rows of a reading until the rows of its step are written."""
        if step in self._buffer:
            self._buffer.add_reading(step, name, rows)
        elif self._last is not None and self._last[0] == step:  # its rows were too many to wait
            for failure in self._read(step, {name: [rows]}, self._last[1]):
                self._fail(step, failure)
        elif self._ledger.fail("readings"):
            self._report(f"step {step}: reading {name}: its rows were dropped")

    def say(self, entries: Sequence[Mapping[str, Any]]) -> None:
        """Writes entries to the commit log, after the lines of steps that have ended."""
        self._unsaid.extend(entries)
        if not self._ended:
            self._say()

    def finish(self, done: Callable[[bool], None]) -> None:
        """Writes whatever is buffered, and reports what was dropped. Then calls `done` with whether nothing waits in memory."""
        done(not self._saved() and not self._unsaid)

    def say_dropped(self) -> None:
        """Writes to the commit log what was dropped since the last call, and lines that could not be written then."""
        self._say(*map(_dropped_line, self._ledger.newly_dropped()))

    def close(self) -> None:
        """Finishes, and writes the final counts to the commit log. Rows without statistics on disk are lost by then."""
        self._refused.settle(self._saved(), at_last=True)
        self.say_dropped()
        tally = self._ledger.counts.sequences
        self._say({"kind": CLOSE, **asdict(tally)})

    def let_go(self) -> None:
        """Does nothing: buffered rows were counted as dropped when they were abandoned."""

    def drop(self, step: int, sequences: int, reason: str, detail: str, tokens: int = 0) -> None:
        """Counts sequences that will never be on disk."""
        if self._ledger.drop(Dropped(step, reason, detail, sequences, tokens)):
            self._report(
                f"step {step}: {sequences} sequences dropped, {reason}: {detail}. More of this is only counted."
            )

    def _saved(self) -> Unsaved:
        """Writes what is buffered, retries what could not be written, reports what was dropped; what is still not durable."""
        self._write(self._buffer.steps)
        self._refused.settle(saved(self._made_sink))
        self.say_dropped()
        return unsaved(self._made_sink)

    @property
    def _sink(self) -> Sink:
        """The sink, made at the first call that needs it. While it cannot be made, steps are dropped and the writer goes on."""
        if self._made_sink is None:
            self._made_sink = self._make_sink()
        return self._made_sink

    @property
    def _ended(self) -> list[int]:
        """The buffered steps before the one whose rows came last."""
        return [each for each in self._buffer.steps if each < self._current]

    def _write(self, steps: list[int]) -> None:
        most = self._together if isinstance(self._made_sink, TakesSteps) else 1
        for group in list(self._buffer.groups(steps, most)):
            self._write_group([taken for step in group if (taken := self._taken_out(step)) is not None])

    def _taken_out(self, step: int) -> _TakenRows | None:
        """The rows of a step, taken out of the buffer; None if they are of no use any more, or cannot be put together."""
        batches, readings = self._buffer.take_out(step)
        sequences = sum(batch.num_rows for batch in batches)
        self._intake.let_go(sequences)
        if self._ledger.is_sealed:
            return None
        try:
            rows = _table(batches)
            if (shared := int(other_samples(rows).sum())) and self._ledger.fail("sequence_ids"):  # written as they are
                words = f"{shared} sequences have the id of another one, and other log-probs: readers show one of each; {WANTED}"
                self._report(f"step {step}: {words}. More of this is only counted.")
                self.say([{"kind": EVENT, "event": "shared_ids", "step": step, "note": words}])
            earlier = self._written[1] if self._written is not None and self._written[0] == step else None
            return _TakenRows(StepRows(step, rows, earlier), tokens_of(rows), readings)
        except Exception as error:
            self.drop(step, sequences, NOT_WRITTEN, reason_of(error))
            return None

    def _write_group(self, group: list[_TakenRows]) -> None:
        if not group:
            return
        parts, tally = [each.part for each in group], self._ledger.counts.sequences
        try:
            written = list(zip(group, outcomes(self._sink, parts, tally, self._late()), strict=True))
        except Exception as error:
            for each in group:
                self.drop(each.part.step, len(each.part.rows), NOT_WRITTEN, reason_of(error), each.tokens)
            return
        for each, outcome in written:
            self._settle(each.part.step, outcome, len(each.part.rows), each.tokens)
        self._last = (parts[-1].step, written[-1][1])
        self._refused.settle(unsaved(self._made_sink))
        self._written = self._kept_for_parts(parts[-1])
        for each, outcome in written:
            for failure in (*outcome.failures, *self._read(each.part.step, each.readings, outcome)):
                self._fail(each.part.step, failure)
        self.say_dropped()

    def _read(self, step: int, readings: Mapping[str, list[pa.RecordBatch]], outcome: RowsOutcome) -> Iterator[str]:
        """Writes the readings of the rows of a step that were just written. Yields why one was not."""
        for name, batches in readings.items():
            try:
                if outcome.refused is not None:
                    raise OSError(f"its rows were not written: {outcome.refused}")
                if not isinstance(self._sink, KeepsReadings):
                    raise TypeError("this sink has no write_reading")
                self._sink.write_reading(step, name, pa.Table.from_batches(batches))
            except Exception as error:
                yield f"readings: {name}: {reason_of(error)}"

    def _kept_for_parts(self, part: StepRows) -> tuple[int, pa.Table] | None:
        """(step, its rows so far), with which further parts of the step are measured; None if they take too much memory."""
        try:
            every_part = part.every_part
            return (part.step, every_part) if every_part.nbytes <= self._most_bytes else None
        except Exception:
            return None

    def _settle(self, step: int, outcome: RowsOutcome, sequences: int, tokens: int) -> None:
        """Counts what became of the rows of a step."""
        if outcome.refused is not None:
            self._refused.add(Dropped(step, STATISTICS_ONLY, outcome.refused, sequences, tokens))
            return
        self._ledger.write(outcome.rows, outcome.tokens)
        if outcome.left_out:
            self._ledger.leave_out(outcome.left_out, tokens - outcome.tokens)

    def _late(self) -> str | None:
        waiting = self._pressure()
        return f"the disk is too slow: the queue is {waiting:.0%} full" if waiting > _LATE else None

    def _fail(self, step: int, failure: str) -> None:
        if self._ledger.fail(failure.split(":")[0]):
            self._report(f"step {step}: {failure}. No sequence was lost. More of this is only counted.")

    def _say(self, *entries: Mapping[str, Any]) -> None:
        self._unsaid.extend(entries)
        if not self._unsaid:
            return
        try:
            self._sink.open()
            while self._unsaid:
                self._sink.say(self._unsaid.popleft())  # a sink that fails here keeps the line itself
        except Exception as error:
            if self._ledger.fail("commit log"):
                self._report(f"the commit log cannot be written: {reason_of(error)}")


def _dropped_line(dropped: Dropped) -> dict[str, Any]:
    reason = f"{dropped.reason}: {dropped.detail}" if dropped.detail else dropped.reason
    return {
        "kind": DROPPED,
        "step": dropped.step,
        "sequences": dropped.sequences,
        "tokens": dropped.tokens,
        "reason": reason,
    }


def _table(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows of the batches; in one chunk if the batches are small, because whatever follows costs a fee for each chunk."""
    rows = pa.Table.from_batches(batches)
    return rows.combine_chunks() if sum(batch.nbytes for batch in batches) < len(batches) * SMALL_BYTES else rows


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


class Intake:
    """Belongs to one writer. now: seconds on any clock that never goes back."""

    def __init__(self) -> None:
        self._held = self._said = 0
        self._since = math.inf
        self._has_written = False

    def hold(self, sequences: int, now: float) -> None:
        """Adds sequences that wait."""
        self._held += sequences
        self._since = min(self._since, now)

    def let_go(self, sequences: int) -> None:
        """Takes off sequences that wait no more: their fate is in the log."""
        self._held, self._said, self._since, self._has_written = self._held - sequences, 0, math.inf, True

    def wait(self, now: float) -> float | None:
        """Seconds until the log should say how many wait, 0 or less if it should now; None if it says so, or none waits."""
        if self._held < max(1, 2 * self._said):
            return None
        since = now if self._since == math.inf else self._since
        return since + (SECONDS if self._has_written else FIRST_SECONDS) - now

    def say(self) -> None:
        """Notes that the log records how many wait."""
        self._said = self._held
