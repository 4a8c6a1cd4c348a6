"""Rows of Arrow files, streams (as Hugging Face datasets writes) and files (Feather): batch by batch, each bounded first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.errors import UnsafeFile
from ratioscope.metrics.engines.arrow_columns import pc

from .arrow_messages import DICTIONARY, ROWS, is_file, listed, streamed
from .csv_rows import demand_once
from .restricted.budget import OBJECT_BYTES, Allowance, FileLimits

BATCH = 64
_FLAT = (pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_null, pa.types.is_temporal,
         pa.types.is_decimal)  # fmt: skip
_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary,
          pa.types.is_string_view, pa.types.is_binary_view)  # fmt: skip
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)


def arrow_rows(data: memoryview, limits: FileLimits) -> Iterator[dict[str, Any]]:
    """The rows of a file. UnsafeFile where it is cut off or decodes to too much; an error of pyarrow's where it is damaged."""
    source = pa.BufferReader(pa.py_buffer(data))
    is_stream = not is_file(data)
    reader: Any = (
        pa.ipc.open_stream(source) if is_stream else pa.ipc.open_file(source)
    )  # Any: their batches differ in name
    demand_once(reader.schema.names, "columns")
    for field in reader.schema:
        _demand_known(field.name, field.type)
    dictionaries, count = Allowance(limits), 0
    for message in streamed(data) if is_stream else listed(data):
        if message.rows < 0 or message.rows > message.decoded:
            raise UnsafeFile(
                f"it has a batch of {message.rows} rows in {message.decoded} bytes; a row takes one byte at least"
            )
        if message.kind == DICTIONARY:
            dictionaries.spend(message.decoded)
        if message.kind == ROWS:
            Allowance(limits).spend(message.decoded)
            yield from _batch_rows(reader.read_next_batch() if is_stream else reader.get_batch(count), limits)
            count += 1


def _batch_rows(batch: pa.RecordBatch, limits: FileLimits) -> Iterator[dict[str, Any]]:
    batch.validate(full=True)
    for start in range(0, batch.num_rows, BATCH):
        some = batch.slice(start, BATCH)
        Allowance(limits).spend(sum(map(_weight, some.columns)))
        yield from rows_of(some)


def rows_of(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """The rows of a batch; lists of numbers as numpy arrays."""
    columns = {name: _cells(column) for name, column in zip(batch.schema.names, batch.columns, strict=True)}
    for index in range(batch.num_rows):
        yield {name: cells[index] for name, cells in columns.items()}


def _cells(column: pa.Array[Any]) -> list[Any]:
    """The values of a column; lists of numbers as numpy arrays."""
    column = _plain(column)
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


def _plain(column: Any) -> Any:
    return column.storage if isinstance(column, pa.ExtensionArray) else column


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


def _weight(column: Any) -> int:
    """Bytes that the values of a column take as objects of Python, at most."""
    column = _plain(column)
    own, kind = OBJECT_BYTES * len(column), column.type
    if _is(kind, _LISTS):
        return own + _weight(column.flatten())
    if pa.types.is_struct(kind):
        return own + sum(map(_weight, column.flatten()))
    if pa.types.is_dictionary(kind):
        lengths = _lengths(column.dictionary)
        return own + int(lengths[column.indices.drop_null().to_numpy()].sum())
    return own + int(_lengths(column).sum())


def _lengths(column: Any) -> np.ndarray[Any, Any]:
    """Bytes of the text of each entry, 0 for what is no text."""
    if pa.types.is_string_view(column.type) or pa.types.is_binary_view(column.type):
        # no function of Arrow's takes views
        views = np.frombuffer(column.buffers()[1] or b"", np.int32)[::4]
        return views[column.offset : column.offset + len(column)].astype(np.int64)
    if not _is(column.type, _TEXTS):
        return np.zeros(len(column), np.int64)
    lengths: Any = pc.fill_null(pc.binary_length(column), 0)
    return np.asarray(lengths.to_numpy(zero_copy_only=False), np.int64)
