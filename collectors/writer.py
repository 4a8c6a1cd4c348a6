"""The writer's work, one call at a time: batches become rows, rows of a step are written when the step has ended.

A step ends when a later one arrives, or when `finish` is called. Nothing here raises: what cannot be written is dropped,
counted in the ledger with its reason, told to `report` the first time, and noted in the commit log as a gap.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from ratioscope.layout import CLOSE, EVENT, GAP

from .batch import Batch
from .counts import Gap, Ledger, reason_of
from .host_copy import HostCopies
from .records import rows_of, tokens_of
from .sink import Outcome, Sink, Unsaved, saved, unsaved
from .token_texts import TokenTexts

MALFORMED = "malformed"
NOT_WRITTEN = "not written"
STATISTICS_ONLY = "in the statistics only"
_LATE = 0.75  # share of the queue above which token rows wait for better times
_UNSAID = 10_000  # lines that wait for the sink to open; some megabytes


class Writer:
    """Belongs to one thread. `report` takes a sentence for the user; `pressure` tells how full the queue is, 0 to 1."""

    def __init__(
        self,
        sink: Sink,
        ledger: Ledger,
        copies: HostCopies,
        report: Callable[[str], None],
        texts: TokenTexts | None = None,
        pressure: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._pressure = pressure
        self._sink, self._ledger, self._copies, self._report, self._texts = sink, ledger, copies, report, texts
        self._buffered: dict[int, list[pa.RecordBatch]] = {}
        self._written: tuple[int, pa.Table] | None = None
        self._unsaid: deque[Mapping[str, Any]] = deque(maxlen=_UNSAID)
        self._refused: list[Gap] = []

    def take(self, batch: Batch) -> None:
        """Buffers the rows of a batch; writes the steps that are earlier than it."""
        for step in sorted(step for step in self._buffered if step < batch.step):
            self._write(step)
        try:
            attempt = self._sink.open()
        except Exception as error:
            self.drop(batch.step, batch.offered, NOT_WRITTEN, reason_of(error))
        else:
            self._buffer(batch, attempt)
        finally:
            self._copies.release_all(batch.copies)

    def event(self, kind: str, step: int, note: str) -> None:
        """Notes an event in the commit log."""
        self._say({"kind": EVENT, "event": kind, "step": step, "note": note})

    def finish(self) -> Unsaved:
        """Writes whatever is buffered, tries once more what could not be written, and notes the gaps; what is not durable."""
        for step in sorted(self._buffered):
            self._write(step)
        self._settle_refused(saved(self._sink))
        self.say_gaps()
        self._say_unsaid()
        found = unsaved(self._sink)
        return replace(found, lines=found.lines + len(self._unsaid))

    def say_gaps(self) -> None:
        """Notes what was dropped since the last time."""
        for gap in self._ledger.unsaid_gaps():
            reason = f"{gap.reason}: {gap.detail}" if gap.detail else gap.reason
            self._say(
                {"kind": GAP, "step": gap.step, "sequences": gap.sequences, "tokens": gap.tokens, "reason": reason}
            )

    def close(self) -> None:
        """Finishes, and notes the final counts: what no statistics on disk tell of by now is lost."""
        self._settle_refused(self.finish(), at_last=True)
        self.say_gaps()
        tally = self._ledger.counts.sequences
        self._say({"kind": CLOSE, **asdict(tally)})

    def drop(self, step: int, sequences: int, reason: str, detail: str, tokens: int = 0) -> None:
        """Counts sequences that will never be on disk."""
        if self._ledger.drop(Gap(step, reason, detail, sequences, tokens)):
            self._report(
                f"step {step}: {sequences} sequences dropped, {reason}: {detail}. More of this is only counted."
            )

    def _buffer(self, batch: Batch, attempt: int) -> None:
        try:
            rows = rows_of(batch, attempt)
        except Exception as error:
            self.drop(batch.step, batch.offered, MALFORMED, reason_of(error))
            return
        self._ledger.offer(rows.offered - batch.offered)
        if rows.fault is not None:
            self.drop(batch.step, rows.offered - rows.records.num_rows, MALFORMED, rows.fault)
        if rows.records.num_rows:
            self._buffered.setdefault(batch.step, []).append(self._with_texts(batch.step, rows.records))

    def _with_texts(self, step: int, records: pa.RecordBatch) -> pa.RecordBatch:
        if self._texts is None:
            return records
        try:
            return self._texts.added(records)
        except Exception as error:
            self._fail(step, f"token texts: {reason_of(error)}")
            return records

    def _write(self, step: int) -> None:
        batches = self._buffered.pop(step)
        sequences, tokens = sum(batch.num_rows for batch in batches), 0
        if self._ledger.is_sealed:
            return
        try:
            tokens = sum(tokens_of(batch) for batch in batches)
            rows = pa.Table.from_batches(batches)
            earlier = self._written[1] if self._written is not None and self._written[0] == step else None
            outcome = self._sink.write(step, rows, earlier, self._ledger.counts.sequences, self._late())
        except Exception as error:
            self.drop(step, sequences, NOT_WRITTEN, reason_of(error), tokens)
            return
        self._settle(step, outcome, sequences, tokens)
        self._settle_refused(unsaved(self._sink))
        self._written = (step, rows if earlier is None else pa.concat_tables([earlier, rows]))
        for failure in outcome.failures:
            self._fail(step, failure)
        self.say_gaps()

    def _settle(self, step: int, outcome: Outcome, sequences: int, tokens: int) -> None:
        """Counts what became of the rows of a step."""
        if outcome.refused is not None:
            self._refused.append(Gap(step, STATISTICS_ONLY, outcome.refused, sequences, tokens))
            return
        self._ledger.write(outcome.rows, outcome.tokens)
        if outcome.left_out:
            self._ledger.leave_out(outcome.left_out, tokens - outcome.tokens)

    def _settle_refused(self, found: Unsaved, *, at_last: bool = False) -> None:
        """Counts sequences without token rows, once it is known whether their statistics are on disk: until then they are
        pending."""
        refused, self._refused = self._refused, []
        for gap in refused:
            if gap.step in found.lost or (at_last and gap.step in found.steps):
                self.drop(gap.step or 0, gap.sequences, NOT_WRITTEN, found.reason or gap.detail, gap.tokens)
            elif gap.step in found.steps:
                self._refused.append(gap)
            else:
                self._ledger.drop(gap)

    def _late(self) -> str | None:
        waiting = self._pressure()
        return f"the disk is too slow: the queue is {waiting:.0%} full" if waiting > _LATE else None

    def _fail(self, step: int, failure: str) -> None:
        if self._ledger.fail(failure.split(":")[0]):
            self._report(f"step {step}: {failure}. No sequence was lost. More of this is only counted.")

    def _say(self, entry: Mapping[str, Any]) -> None:
        self._unsaid.append(entry)
        self._say_unsaid()

    def _say_unsaid(self) -> None:
        if not self._unsaid:
            return
        try:
            self._sink.open()
            while self._unsaid:
                self._sink.say(self._unsaid.popleft())  # a sink that fails here keeps the line itself
        except Exception as error:
            if self._ledger.fail("commit log"):
                self._report(f"the commit log cannot be written: {reason_of(error)}")
