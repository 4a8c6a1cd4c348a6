"""Turns batches into rows, on the writer's thread of the trainer's process. Rows no longer depend on the trainer.

Nothing here raises: a batch that cannot be understood is dropped, and counted in the ledger with its reason.
"""

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from ratioscope.record import reading_schema
from ratioscope.topk import TOPK, topk_schema

from ..process.counts import Dropped, Ledger, reason_of
from .batch import Batch
from .breaths import let_go
from .host_copy import HostCopies, Joined
from .records import rows_of
from .token_texts import TokenTexts

MALFORMED = "malformed"


class BatchRows:
    """Belongs to one thread.

    report: called with a sentence for the user. texts: decodes token ids, if texts are wanted. allowed: takes out of rows what
    the text policy forbids to record.
    """

    def __init__(
        self,
        ledger: Ledger,
        copies: HostCopies,
        report: Callable[[str], None],
        texts: TokenTexts | None = None,
        allowed: Callable[[pa.RecordBatch], pa.RecordBatch] = lambda records: records,
    ) -> None:
        self._ledger, self._copies, self._report = ledger, copies, report
        self._texts, self._allowed = texts, allowed

    def of(self, batch: Batch) -> tuple[pa.RecordBatch | None, dict[str, pa.RecordBatch]]:
        """(the rows of the batch that can be recorded, or None; name -> the rows of a reading of them).

        Their attempt is 0 until the writer sets it.
        """
        try:
            rows = rows_of(batch, 0)
            records = self._allowed(rows.records)
        except Exception as error:
            self._drop(batch.step, batch.offered, reason_of(error))
            return None, {}
        finally:
            self._copies.release_all(batch.copies)
            for value in batch.values.values():
                value = value.values if isinstance(value, Joined) else value
                if isinstance(value, list):  # the batch's own copy, which nobody reads any more
                    let_go(value)
        self._ledger.offer(rows.offered - batch.offered)
        if rows.fault is not None:
            self._drop(batch.step, rows.offered - records.num_rows, rows.fault, rows.tokens_left_out)
        for fault in rows.column_faults:
            self._fail("columns", f"step {batch.step}: {fault}; null where it does not fit")
        for fault in rows.reading_faults:
            self._fail("readings", f"step {batch.step}: {fault}")
        for fault in rows.topk_faults:
            self._fail("topk", f"step {batch.step}: {fault}: top-k is left out")
        read = {name: _reading_rows(records, column, name) for name, column in rows.readings.items()}
        return self._with_texts(batch.step, records) if records.num_rows else None, read

    def _with_texts(self, step: int, records: pa.RecordBatch) -> pa.RecordBatch:
        if self._texts is None:
            return records
        try:
            return self._texts.added(records)
        except Exception as error:
            self._fail("token texts", f"step {step}: token texts: {reason_of(error)}")
            return records

    def _fail(self, what: str, words: str) -> None:
        if self._ledger.fail(what):
            self._report(f"{words}. No sequence was lost. More of this is only counted.")

    def _drop(self, step: int, sequences: int, detail: str, tokens: int = 0) -> None:
        """tokens: 0 if nobody can count them."""
        if self._ledger.drop(Dropped(step, MALFORMED, detail, sequences, tokens)):
            said = f"step {step}: {sequences} sequences dropped, {MALFORMED}: {detail}. More of this is only counted."
            self._report(said)


def carried_schema(name: str) -> pa.Schema:
    """The schema of the rows of a reading, or of top-k under the name TOPK."""
    return topk_schema() if name == TOPK else reading_schema()


def _reading_rows(records: pa.RecordBatch, values: "pa.Array[Any]", name: str) -> pa.RecordBatch:
    """The rows of a reading: keys of the Records, and the log-probs or lists. Rows without any are left out."""
    given = {key: records.column(key) for key in ("attempt", "step", "minibatch", "sequence_id", "positions")}
    rows, schema = len(values), carried_schema(name)
    own = {"logprobs": values}
    if isinstance(values, pa.StructArray):
        own = {field.name: values.field(place) for place, field in enumerate(values.type)}
    columns = {**given, **own}
    read = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    batch = pa.RecordBatch.from_arrays(read, names=schema.names)
    return batch.filter(values.is_valid()).cast(schema)
