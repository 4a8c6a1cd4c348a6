"""Readings beside the rows that they are of: a column `<name>_logprobs`, aligned by attempt, step and sequence_id.

Nothing is aligned by order. A reading of a sequence that is not on record, or of another length than the sequence, is left out
and counted in a Fit.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from operator import add

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Booleans, Integers
from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, list_lengths, pc, row_keys
from ratioscope.metrics.engines.parts import gathered
from ratioscope.record import POLICIES, reading_schema
from ratioscope.topk import COUNTS, TOPK, topk_schema

from ..commits.reading_files import ReadingFile
from ..files.columns import conformed, extra_columns
from ..files.parquet_files import ParquetFiles, read
from ..files.quarantine import SetAside, faults_set_aside
from . import topk_rows
from .record_rows import demand_positions

_CARRIER = "rollout_logprobs"
"""Column of the Record under which `gathered` puts the slices of a reading together."""
REQUIRED = ("attempt", "step", "sequence_id", "logprobs")
SCHEMA = reading_schema()
"""Columns of a file of a reading; those after REQUIRED may be absent."""

StepReadings = Mapping[str, Sequence[ReadingFile]]
"""reading -> its files of one step, the newest first."""


@dataclass(frozen=True)
class Fit:
    """The fate of the readings of some rows."""

    fitting: int = 0
    """Sequences with a reading of their length."""
    replaced: int = 0
    """Readings of sequences that were read again later: the newest counts."""
    unknown: int = 0
    """Readings of sequences that are not on record at their attempt and step."""
    mismatched: int = 0
    """Readings of another length than their sequence."""

    def __add__(self, other: "Fit") -> "Fit":
        return Fit(*map(add, astuple(self), astuple(other)))


class ReadingRows:
    """Reads files of readings. A file that is not as committed is set aside."""

    def __init__(self, files: ParquetFiles, set_aside: SetAside) -> None:
        self.files, self._set_aside = files, set_aside

    def added(self, records: pa.Table, readings: StepReadings) -> tuple[pa.Table, dict[str, Fit]]:
        """Joined Records with a column `<name>_logprobs` per reading, null where it has none; and reading -> Fit.

        inclusion_probability becomes the probability with which the row was recorded and read, for rows that were read.
        """
        fits: dict[str, Fit] = {}
        for name, files in readings.items():
            rows, replaced = self.table(files)
            records, fit = _beside(records, rows, f"{name}_logprobs")
            fits[name] = Fit(fit.fitting, replaced, fit.unknown, fit.mismatched)
        return records, fits

    def table(self, files: Sequence[ReadingFile]) -> tuple[pa.Table, int]:
        """(the rows of the files of a step, one per sequence; number of rows that newer ones replace). Newest files first."""
        tables = [table for file in files if (table := self._one(file)) is not None]
        rows = pa.concat_tables(tables) if tables else SCHEMA.empty_table()
        if not len(rows):
            return rows, 0
        keys = row_keys(rows)
        if rows["positions"].null_count == len(rows):
            _, newest = np.unique(keys, return_index=True)
            return rows.take(np.sort(newest)), len(rows) - len(newest)
        names = [_CARRIER if name == "logprobs" else name for name in rows.column_names]
        whole = gathered(rows.rename_columns(names))
        return whole.rename_columns(rows.column_names), 0

    def topk(self, files: Sequence[ReadingFile]) -> pa.Table:
        """The rows of files of top-k of a step, the newest first."""
        tables = [table for file in files if (table := self._one(file)) is not None]
        return pa.concat_tables(tables) if tables else topk_schema().empty_table()

    def _one(self, file: ReadingFile) -> pa.Table | None:
        with faults_set_aside(file.path, self._set_aside):
            return demanded_rows(self.files, file)
        return None


def demanded_rows(files: ParquetFiles, file: ReadingFile) -> pa.Table:
    """The rows of a file of a reading or of top-k. SourceError unless they are as its commit states."""
    is_topk = file.reading == TOPK
    schema, required = (topk_schema(), topk_rows.REQUIRED) if is_topk else (SCHEMA, REQUIRED)
    with files.opened(file.path, file.bytes, file.sha256) as parquet:
        extra_columns(parquet.schema_arrow, schema, required)
        table = conformed(read(parquet, schema.names), schema)
    if len(table) != file.rows:
        raise SourceError(f"it has {len(table)} rows, its commit states {file.rows}")
    for name, committed in (("step", file.step), ("attempt", file.attempt)):
        values = pc.unique(table[name]).to_pylist()
        if values not in ([committed], []):
            raise SourceError(f"its rows have {name} {values[:3]}, its commit states {committed}")
    if table["sequence_id"].null_count:
        raise SourceError(f"{table['sequence_id'].null_count} of its rows have no sequence_id")
    demand_positions(table)
    if int(list_lengths(table[COUNTS if is_topk else "logprobs"]).sum()) != file.tokens:
        raise SourceError(f"its rows have another number of tokens than its commit states: {file.tokens}")
    if is_topk:
        topk_rows.demand_lists(table)
    return table


def _beside(records: pa.Table, rows: pa.Table, column: str) -> tuple[pa.Table, Fit]:
    index, unknown = _rows_of(records, rows)
    found = index >= 0
    lengths = list_lengths(rows["logprobs"])
    fits = found.copy()
    names = [f"{policy}_logprobs" for policy in POLICIES if f"{policy}_logprobs" in records.column_names]
    tokens: Integers = np.maximum.reduce([list_lengths(records[name]) for name in names])
    fits[found] = lengths[index[found]] == tokens[found]
    place: ArrowColumn = pa.array(np.maximum(index, 0), mask=~fits)
    empty = pa.nulls(len(records), SCHEMA.field("logprobs").type)
    records = records.append_column(column, rows["logprobs"].take(place) if len(rows) else empty)
    mismatched = len(np.unique(index[found & ~fits]))
    return _weighed(records, rows, index, fits), Fit(len(np.unique(index[fits])), 0, unknown, mismatched)


def _rows_of(records: pa.Table, rows: pa.Table) -> tuple[Integers, int]:
    """(for each Record the row of its reading, -1 if there is none; number of rows of no Record)."""
    names = ["attempt", "step", "sequence_id"]
    parts = [part.select(names).cast(pa.schema([SCHEMA.field(name) for name in names])) for part in (records, rows)]
    keys = row_keys(pa.concat_tables(parts))
    own, theirs = keys[: len(records)], keys[len(records) :]
    place = np.full(int(keys.max(initial=-1)) + 1, -1, np.int64)
    place[theirs] = np.arange(len(theirs))
    return place[own], int((~np.isin(theirs, own)).sum())


def _weighed(records: pa.Table, rows: pa.Table, index: Integers, fits: Booleans) -> pa.Table:
    chosen = rows["inclusion_probability"]
    if chosen.null_count == len(chosen) or "inclusion_probability" not in records.column_names:
        return records
    of_reading = pc.fill_null(chosen, 1.0).to_numpy()[np.maximum(index, 0)]
    before = pc.fill_null(records["inclusion_probability"], 1.0).to_numpy()
    both = np.where(fits, of_reading * before, before)
    place = records.schema.get_field_index("inclusion_probability")
    return records.set_column(place, "inclusion_probability", pa.array(both))
