"""A table as the bytes of a Parquet file, and the line of the commit log that names such a file."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import layout

from .durable_file import FileBytes

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
