"""A table as the bytes of a Parquet file, and the line of the commit log that names such a file; and files of readings."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout
from ratioscope.kept_settings import kept
from ratioscope.record import SCHEMA_VERSION
from ratioscope.topk import COUNTS, TOPK

from ..batch.token_columns import token_counts
from .durable_file import FileBytes, is_taken

_ROW_GROUP_BYTES = 64 << 20
"""A reader decodes a row group whole, so its memory follows from this. A row is never parted, however long it is."""
_BATCH_VALUES = 1 << 19
"""Values that Arrow encodes at a time: a page of floats has 2 MiB. With its default, a thousand, it takes a fifth longer."""
_LEAST_BYTES = 64
"""A column of fewer bytes is neither compressed nor given a dictionary: both cost more than the column, in time and in space."""


def parquet_bytes(
    table: pa.Table, metadata: Mapping[str, str], *, codec: Literal["zstd", "lz4"] = "zstd"
) -> memoryview:
    """The table as a Parquet file: compressed, byte-stream-split floats, page checksums; a row lies within one row group.

    A table of many chunks takes several times as long. codec: "zstd" makes the smallest file. "lz4" suits many short columns: it
    takes some 20 us less for each to write and 5 us less to read, and makes a file of statistics an eighth larger.
    """
    leaves = [_leaf(field) for field in table.schema]
    # Any: the stubs know only the form that is one value for all columns
    floats: Any = [path for path, value in leaves if pa.types.is_floating(value)]
    filled = {path for (path, _), column in zip(leaves, table.columns, strict=True) if _is_filled(column)}
    others: Any = [path for path, value in leaves if not pa.types.is_floating(value) and path in filled]
    codecs: Any = {path: codec if path in filled else "none" for path, _ in leaves}
    target = pa.BufferOutputStream()  # Arrow would take Python's lock for each page that a stream of Python receives
    table = table.replace_schema_metadata(dict(metadata))
    with pq.ParquetWriter(
        target,
        table.schema,
        compression=codecs,
        use_dictionary=others,
        use_byte_stream_split=floats,
        write_page_checksum=True,
        write_batch_size=_BATCH_VALUES,
    ) as writer:
        for group in _row_groups(table):
            writer.write_table(group, row_group_size=max(1, len(group)))
    return memoryview(target.getvalue())


def _is_filled(column: pa.ChunkedArray[Any]) -> bool:
    return column.null_count < len(column) and column.nbytes > _LEAST_BYTES


def _leaf(field: pa.Field[Any]) -> tuple[str, pa.DataType]:
    if pa.types.is_list(field.type):
        return f"{field.name}.list.element", field.type.value_type
    return field.name, field.type


def _row_groups(table: pa.Table) -> Iterator[pa.Table]:
    """Adjacent rows of at most so many bytes, or one row."""
    if len(table) < 2 or table.nbytes <= _ROW_GROUP_BYTES:
        yield table
        return
    half = len(table) // 2
    yield from _row_groups(table[:half])
    yield from _row_groups(table[half:])


def commit_entry(file: Path, data: FileBytes) -> dict[str, Any]:
    """The line that commits a file: its path, size and digest."""
    return {
        "kind": layout.COMMIT,
        "file": file.as_posix(),
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "time": time.time(),
    }


@dataclass(frozen=True)
class ReadingPart:
    """The rows of a reading that one file holds."""

    name: str
    """The name of the reading; TOPK for top-k."""
    attempt: int
    step: int
    made_of: Mapping[str, Any]
    """The model, versions and settings that made it. Secrets are removed."""


@dataclass(frozen=True)
class WrittenPart:
    """A file that is ready to be written."""

    file: Path
    """Its path, relative to the run."""
    data: FileBytes
    """The file's content."""
    entry: dict[str, Any]
    """The line that commits it."""

    @property
    def folders(self) -> tuple[PurePath, ...]:
        """The folders that must exist, the outermost first."""
        return tuple(reversed(self.file.parents[:-1]))


def written_part(root: Path, writer: str, part: ReadingPart, rows: pa.Table) -> WrittenPart:
    """The file of these rows, under a name that is not taken."""
    number, is_topk = 0, part.name == TOPK
    while is_taken(root, file := _path(part, writer, number)):
        number += 1
    facts = {
        "kind": layout.TOPK if is_topk else layout.READING,
        **({} if is_topk else {"reading": part.name}),
        "attempt": part.attempt,
        "step": part.step,
        "rows": len(rows),
        "tokens": int(np.sum(token_counts(rows[COUNTS if is_topk else "logprobs"]))),
        "schema": SCHEMA_VERSION,
        **({} if is_topk else {"made_of": dict(kept(part.made_of).settings)}),
    }
    copy = json.dumps({**facts, "file": file.as_posix()})
    data = parquet_bytes(rows, {"ratioscope.writer": writer, layout.COMMIT_COPY: copy})
    return WrittenPart(file, data, {**commit_entry(file, data), **facts})


def _path(part: ReadingPart, writer: str, number: int) -> Path:
    if part.name == TOPK:
        return layout.topk_file(part.step, writer, number)
    return layout.reading_file(part.name, part.step, writer, number)
