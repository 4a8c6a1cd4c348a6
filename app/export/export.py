"""Exports the table of a run into one file. Rows pass through in batches, so that memory does not grow with the run.

The file formats of an export. Each writes tables as they come and keeps none of them.

    .parquet   everything as it is; NaN and infinities are floats; null: not available
    .csv       NaN, inf and -inf in words; an empty cell: not available; texts made harmless for spreadsheets
    .jsonl     one object per row; NaN and infinities as the strings that JSON lacks numbers for; null: not available

The facts about the table lie in Parquet's key-value metadata, and beside the other two in NAME.schema.json: a line of facts
in the file itself would break every plain reader.
The facts about an exported table: of which run and version it is, and by which formula each column was computed.
"""

import json
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import CSVWriter, WriteOptions

from ratioscope.ingest.files.progress import OnProgress
from ratioscope.metrics.definitions.registry import of_column
from ratioscope.record import FIELDS, SCHEMA_VERSION
from ratioscope.topk import ARGUMENTS
from ratioscope.version import __version__

from ..presentation.escape import csv as cell
from ..presentation.json_values import jsonable
from ..presentation.without_texts import outgoing
from .probe import digest
from .tables import ColumnSource, ExportedPart, RowLevel, columns, frames, steps_with_rows
from .whole_file import demand_free, whole_files

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

MOST_ROWS, MOST_BYTES, MOST_FRAMES = 1 << 16, 1 << 25, 128
"""The most of a batch, a row group of a Parquet file. Frames count too: a small one may hold more memory than its values
have. One step may have more bytes, and is read at once."""
FACTS = "ratioscope_export"
"""The key of the facts in a Parquet file."""
BESIDE = ".schema.json"
"""The end of the name of the file of facts, for the other formats."""
_ROWS_AT_ONCE = 4096

FORM = "ratioscope.export/1"


@dataclass
class Exported:
    """The numbers of what was written."""

    files: tuple[Path, ...]
    """The file of facts first, where there is one, and the table last."""
    rows: int = 0
    batches: int = 0
    """Portions that the table was written in."""
    steps: int = 0
    without_rows: int = 0
    """Steps that were asked for and have no row at this level."""
    not_read: int = 0
    """Files of the run that are set aside as damaged, so that their rows are missing."""
    without_topk: bool = False
    """True if the run has top-k at this level, which no export has: a token has many of it."""


def export(
    run: "Run", part: ExportedPart, path: Path, *, force: bool = False, progress: OnProgress | None = None
) -> Exported:
    """Writes the table into a file whose ending is one of FORMATS. Nothing is left of an export that raises."""
    run = outgoing(run, text=part.text)
    beside = () if path.suffix == ".parquet" else (path.with_name(path.name + BESIDE),)
    files = (*beside, path)
    demand_free(files, force=force)
    steps, wanted = steps_with_rows(run, part), columns(run, part)
    asked = sum(map(part.has, run.steps))
    done = Exported(files, steps=len(steps), without_rows=asked - len(steps))
    facts = table_facts(run, part, wanted)
    done.without_topk = "left_out" in facts

    def known() -> bytes:
        done.not_read = len(run.quarantined)
        return _json(facts | _counts(run, part.level, steps, done))

    schema = _arrow(pl.DataFrame(schema={name: source.type for name, source in wanted.items()})).schema
    read = _reported(frames(run, part, steps), len(steps), progress)
    with whole_files(files, force=force) as opened:
        FORMATS[path.suffix](opened[-1], schema, _counted(batches(read), done), known)
        for file in opened[:-1]:
            file.write(known())
    return done


def batches(frames: Iterable[pl.DataFrame]) -> Iterator[pa.Table]:
    """Tables of up to MOST_ROWS rows and about MOST_BYTES bytes. Small frames are put together, large ones are cut."""
    waiting: list[pl.DataFrame] = []
    rows = size = 0
    for frame in frames:
        for piece in frame.iter_slices(MOST_ROWS):
            full = rows + len(piece) > MOST_ROWS or size > MOST_BYTES or len(waiting) >= MOST_FRAMES
            if waiting and full:
                yield _arrow(pl.concat(waiting))
                waiting, rows, size = [], 0, 0
            waiting.append(piece)
            rows, size = rows + len(piece), size + int(piece.estimated_size())
    if rows:
        yield _arrow(pl.concat(waiting))


def _reported(
    tables: Iterable[tuple[int, pl.DataFrame]], total: int, progress: OnProgress | None
) -> Iterator[pl.DataFrame]:
    for done, frame in tables:
        yield frame
        if progress is not None:
            progress(done, total)


def _counted(tables: Iterable[pa.Table], done: Exported) -> Iterator[pa.Table]:
    for table in tables:
        done.rows, done.batches = done.rows + len(table), done.batches + 1
        yield table


def _counts(run: "Run", level: RowLevel, steps: list[int], done: Exported) -> dict[str, Any]:
    """The facts that are known at the end."""
    return {
        "rows": done.rows,
        "steps": {"number": done.steps, "first": steps[0] if steps else None, "last": steps[-1] if steps else None},
        "steps_without_rows": done.without_rows,
        "unsettled_steps": run.unsettled,
        **({"every_token_counted": run.exact()} if level == "step" else {}),  # else it may read all rows once more
        "damaged_files": [file.path for file in run.quarantined],
    }


def _arrow(frame: pl.DataFrame) -> pa.Table:
    """The frame as a table of types that every reader of Parquet knows: no string views."""
    return frame.to_arrow(compat_level=pl.CompatLevel.oldest())


def _json(value: Any) -> bytes:
    return (json.dumps(jsonable(value), indent=1) + "\n").encode()


Tables = Iterable[pa.Table]
Write = Callable[[IO[bytes], pa.Schema, Tables, Callable[[], bytes]], None]


def write_parquet(file: IO[bytes], schema: pa.Schema, tables: Tables, facts: Callable[[], bytes]) -> None:
    """A row group per table. The facts are asked for at the end."""
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)
        writer.add_key_value_metadata({FACTS: facts().decode()})


def write_csv(file: IO[bytes], schema: pa.Schema, tables: Tables, facts: Callable[[], bytes]) -> None:
    """Text cells as the dashboard's own CSV has them: no spreadsheet runs one as a formula."""
    plain = pa.schema([pa.field(cell(field.name), field.type) for field in schema])
    with CSVWriter(file, plain, write_options=WriteOptions(quoting_style="needed")) as writer:
        for table in tables:
            columns = [
                _harmless(column) if pa.types.is_large_string(column.type) else column for column in table.columns
            ]
            writer.write_table(pa.table(columns, schema=plain))


def write_jsonl(file: IO[bytes], schema: pa.Schema, tables: Tables, facts: Callable[[], bytes]) -> None:
    """An object per line."""
    for table in tables:
        for batch in table.to_batches(_ROWS_AT_ONCE):
            columns = [_named(column.to_pylist(), column.type) for column in batch.columns]
            rows = (json.dumps(dict(zip(schema.names, row, strict=True))) for row in zip(*columns, strict=True))
            file.write("".join(f"{row}\n" for row in rows).encode())


FORMATS: dict[str, Write] = {".parquet": write_parquet, ".csv": write_csv, ".jsonl": write_jsonl}


def _harmless(column: Any) -> Any:
    """The texts with what a spreadsheet would run made visible; each different text is looked at once."""
    coded: Any = column.combine_chunks().dictionary_encode()  # pyarrow's types do not know arrays of codes
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    safe = pa.array([cell(text) for text in coded.dictionary.to_pylist()], pa.large_string())
    return safe.take(coded.indices)


def _named(values: list[Any], kind: pa.DataType) -> list[Any]:
    """The values with names for the floats that JSON has no number for."""
    if not pa.types.is_floating(kind):
        return values
    return [jsonable(value) if value is not None and not math.isfinite(value) else value for value in values]


def table_facts(run: "Run", part: ExportedPart, columns: dict[str, ColumnSource]) -> dict[str, Any]:
    """The facts known before any row. `digest` of a column: equal digests mean the same formula, whatever the versions."""
    return {
        "form": FORM,
        "ratioscope": __version__,
        "schema_version": SCHEMA_VERSION,
        "run": {"name": run.name, "digest": run.digest, "schema_version": run.info.get("schema_version")},
        "level": part.level,
        "text": part.text,
        "columns": {name: _column(part.level, name, source) for name, source in columns.items()},
        **({"left_out": [*ARGUMENTS]} if part.level == "token" and run.topk_steps else {}),
    }


def _column(level: str, name: str, source: ColumnSource) -> dict[str, Any]:
    facts: dict[str, Any] = {"type": str(source.type)}
    if source.of_probe is not None:
        facts["digest"] = digest(level, source.of_probe)
    if "/" in name and (metric := of_column(name)) is not None:
        error = name.rpartition("/")[2] != metric.name
        facts |= {"unit": metric.unit, "formula": f"standard error of {metric.formula}" if error else metric.formula}
    elif name in FIELDS:
        facts |= {"unit": FIELDS[name].unit, "meaning": FIELDS[name].meaning}
    return facts
