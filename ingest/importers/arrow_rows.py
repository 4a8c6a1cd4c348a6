"""Rows of Arrow files, streams (as Hugging Face datasets writes) and files (Feather): batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.errors import UnsafeFile

from .csv_rows import demand_once

BATCH = 64
_FLAT = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null, pa.types.is_temporal,
         pa.types.is_decimal)  # fmt: skip
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
          pa.types.is_string_view, pa.types.is_binary_view)  # fmt: skip
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def arrow_rows(data: memoryview) -> Iterator[dict[str, Any]]:
    """The rows of a file. UnsafeFile where it is cut off or of a type that is not read; pyarrow's error where it is damaged."""
    source = pa.BufferReader(pa.py_buffer(data))
    # memory of the system's pool is asked for anew: of pyarrow's own a child inherits up to a gigabyte that no limit counts
    batches = _of_file(source) if bytes(data[:6]) == b"ARROW1" else _of_stream(source)
    for batch in batches:
        batch.validate(full=True)
        for start in range(0, batch.num_rows, BATCH):
            yield from rows_of(batch.slice(start, BATCH))


def _of_file(source: pa.BufferReader) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_file(source, memory_pool=pa.system_memory_pool())
    _demand_sound(reader.schema)
    yield from map(reader.get_batch, range(reader.num_record_batches))


def _of_stream(source: pa.BufferReader) -> Iterator[pa.RecordBatch]:
    reader = pa.ipc.open_stream(source, memory_pool=pa.system_memory_pool())
    _demand_sound(reader.schema)
    at = source.tell()
    for batch in reader:
        yield batch
        at = source.tell()
    if source.tell() == at:  # pyarrow takes the end of the bytes for the mark of the end
        raise UnsafeFile("it has no mark of its end: it was cut off, or its writer was ended")
    if left := source.size() - source.tell():
        raise UnsafeFile(f"{left} bytes follow the mark of its end: two streams in one file, or damage")


def _demand_sound(schema: pa.Schema) -> None:
    demand_once(schema.names)
    for field in schema:
        _demand_known(field.name, field.type)


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch; lists of numbers as numpy arrays."""
    columns = {name: _cells(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    for index in range(batch.num_rows):
        yield {name: cells[index] for name, cells in columns.items()}


def _cells(column: pa.Array[Any]) -> list[Any]:
    """The values of a column; lists of numbers as numpy arrays."""
    column = column.storage if isinstance(column, pa.ExtensionArray) else column
    kind: Any = column.type
    if not _is(kind, _LISTS) or not (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type)):
        values: list[Any] = column.to_pylist()
        return values
    scalars: Any = column
    return [None if cell.values is None else _numbers(cell.values) for cell in scalars]


def _numbers(values: Any) -> np.ndarray[Any, Any]:
    """The numbers of an array of Arrow; null is NaN. pyarrow's own conversion imports pandas, which takes a fifth of a second."""
    if values.null_count or not len(values):
        return values.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]
    return np.from_dlpack(values)


def _is(kind: Any, kinds: tuple[Callable[[Any], bool], ...]) -> bool:
    return any(is_one(kind) for is_one in kinds)


def _demand_known(name: str, kind: Any) -> None:
    """UnsafeFile for a type whose values may lie over each other in memory, so that few bytes are many values."""
    if isinstance(kind, pa.BaseExtensionType):
        _demand_known(name, kind.storage_type)
    elif _is(kind, _LISTS):
        _demand_known(name, kind.value_type)
    elif pa.types.is_struct(kind):
        for place in range(kind.num_fields):
            _demand_known(name, kind.field(place).type)
    elif not _is(kind.value_type if pa.types.is_dictionary(kind) else kind, (*_FLAT, *_TEXTS)):
        raise UnsafeFile(
            f"its column {name[:80]!r} has the Arrow type {str(kind)[:80]}, which is not read; leave it out, or write the file as"
            " Parquet"
        )
