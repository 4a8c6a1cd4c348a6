"""Exports the table of a run into one file. Rows pass through in batches, so that memory does not grow with the run."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from ratioscope.ingest.files.progress import OnProgress

from ..presentation.json_values import jsonable
from ..presentation.without_texts import outgoing
from .formats import BESIDE, FORMATS
from .table_facts import table_facts
from .tables import ExportedPart, RowLevel, columns, frames, steps_with_rows
from .whole_file import demand_free, whole_files

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

MOST_ROWS, MOST_BYTES, MOST_FRAMES = 1 << 16, 1 << 25, 128
"""The most of a batch, a row group of a Parquet file. Frames count too: a small one may hold more memory than its values
have. One step may have more bytes, and is read at once."""


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
