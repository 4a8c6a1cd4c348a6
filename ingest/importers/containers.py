"""Opens a file of another program and yields its rows: as they come where the format allows it, else within a budget.

Nothing in a file is run, and what it would take in memory is known before it is taken.
JSON objects in a zip archive, member by member. A member says how long it is; not one byte more is unpacked.
"""

from __future__ import annotations

import io
import mmap
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import UnsafeFile
from ratioscope.flat_json import loaded
from ratioscope.inside import open_regular

from ..files.footers import leaves_of
from ..files.page_sizes import decoded_bytes
from .arrays import npz, safetensors
from .arrow_rows import BATCH, arrow_rows, rows_of
from .compression import laid_out, plain_name, unpacked
from .confinement import FileLimits
from .csv_rows import csv_rows, demand_once, demand_utf8, lines_within
from .databases import Linked, database_rows
from .event_streams import event_rows
from .restricted.inert import opened
from .restricted.names import PLAIN, TENSORS
from .restricted.plain_value import bounded_tree, whole_value
from .restricted.torch_files import saved
from .row import Unreadable

_LOCAL_HEADER = struct.Struct("<4s2xHH16xHH")  # signature, flags, method, lengths of name and extra field
_ZSTD = 93
_ENCRYPTED = 1


@dataclass(frozen=True)
class Content:
    """An open file: its value as a whole where it has one, and its rows otherwise."""

    whole: Any = None
    rows: Iterator[Any] | None = None
    """Rows as they are read; a row that cannot be read is an Unreadable. None: the rows lie in `whole`."""
    tell: Callable[[], int] = lambda: 0
    """Bytes read so far."""


@contextmanager
def content(path: Path, container: str, names: Mapping[str, Any], limits: FileLimits) -> Iterator[Content]:
    """The content of a regular file. Links and pipes are refused."""
    with open_regular(path.parent, path.name) as file:
        read = CONTAINERS[container]
        size = path.stat().st_size
        if container in _STREAMED:
            stream = unpacked(file, path.name, size)
            yield replace(read(stream, names, limits), tell=file.tell)
        else:
            with laid_out(file, path.name, size, limits.nbytes) as whole:
                yield read(whole, names, limits)


def _json_rows(file: io.BufferedReader, limits: FileLimits) -> Iterator[Any]:
    for line in lines_within(file, limits):
        if isinstance(line, Unreadable):
            yield line
            continue
        if not line.strip():
            continue
        try:
            row = loaded(line, each_name_once=True)
        except ValueError as error:
            demand_utf8(line)
            is_cut = not line.endswith(b"\n")
            whole = "; it is the last line and does not end: it was cut off" if is_cut else ""
            yield Unreadable(f"the line is no JSON ({str(error)[:80]}){whole}", is_cut)
            continue
        yield row if isinstance(row, dict) else Unreadable("the line is JSON, but no object")


def _events(file: io.BufferedReader, names: Mapping[str, Any], limits: FileLimits) -> Content:
    return Content(rows=event_rows(lines_within(file, limits)), tell=file.tell)


def _json_file(file: io.BufferedReader, names: Mapping[str, Any], limits: FileLimits) -> Content:
    data = file.read(limits.nbytes // 16 + 1)
    if len(data) > limits.nbytes // 16:
        raise UnsafeFile(f"it is JSON of more than {limits.nbytes // 16} bytes; write it as JSON lines")
    try:
        return Content(whole=loaded(data, each_name_once=True))
    except ValueError as error:
        raise UnsafeFile(f"it is no JSON ({str(error)[:80]})") from error


def _sound_rows(rows: Iterator[Any], what: str) -> Iterator[Any]:
    """The rows; UnsafeFile where pyarrow finds that the file is damaged: its data, its texts or its names."""
    try:
        yield from rows
    except MemoryError:  # pyarrow's is an error of both kinds
        raise
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError) as error:
        raise UnsafeFile(f"it is no {what} file, or is damaged ({' '.join(str(error).split())[:120]})") from error


def _parquet_rows(file: io.BufferedReader, limits: FileLimits) -> Iterator[Any]:
    parquet = pq.ParquetFile(file)
    metadata = parquet.metadata

    def read(at: int, count: int) -> bytes:
        file.seek(at)
        return file.read(count)

    demand_once(parquet.schema_arrow.names)
    leaves = leaves_of(metadata, parquet.schema_arrow.names)
    for group in range(metadata.num_row_groups):
        needed = decoded_bytes(read, metadata, leaves, (group,))
        if needed > limits.nbytes:
            raise UnsafeFile(f"its row group {group} decodes to {needed} bytes; at most {limits.nbytes} are allowed")
        for batch in parquet.iter_batches(BATCH, row_groups=[group]):
            batch.validate(full=True)
            yield from rows_of(batch)


Container = Callable[[io.BufferedReader, Mapping[str, Any], FileLimits], Content]


def _table_of_database(table: str, *linked: Linked) -> Container:
    return lambda file, names, limits: Content(rows=database_rows(file, table, linked))


def _plain(file: io.BufferedReader, names: Mapping[str, Any], limits: FileLimits) -> Content:
    known = {**(TENSORS if names else PLAIN), **names}
    return Content(whole=opened(bounded_tree(whole_value(_filled(file), known), limits)))


def _mapped(file: io.BufferedReader) -> memoryview:
    """The bytes of the file, as pages of the file and not of memory."""
    return memoryview(mmap.mmap(_filled(file).fileno(), 0, access=mmap.ACCESS_READ))


def _filled(file: io.BufferedReader) -> io.BufferedReader:
    """The file at its beginning; UnsafeFile if it is empty."""
    if not file.seek(0, io.SEEK_END):
        raise UnsafeFile("it is empty")
    file.seek(0)
    return file


CONTAINERS: dict[str, Container] = {
    "json lines": lambda file, names, limits: Content(rows=_json_rows(file, limits), tell=file.tell),
    "event stream": _events,
    "json": _json_file,
    "json object": lambda file, names, limits: Content(rows=iter([_json_file(file, names, limits).whole])),
    "parquet": lambda file, names, limits: Content(
        rows=_sound_rows(_parquet_rows(file, limits), "Parquet"), tell=file.tell
    ),
    "arrow": lambda file, names, limits: Content(rows=_sound_rows(arrow_rows(_mapped(file)), "Arrow")),
    "csv": lambda file, names, limits: Content(rows=csv_rows(file, limits), tell=file.tell),
    "npz": lambda file, names, limits: Content(whole=npz(file, limits)),
    "safetensors": lambda file, names, limits: Content(whole=safetensors(_mapped(file))),
    "torch": lambda file, names, limits: Content(whole=opened(bounded_tree(saved(_filled(file), names), limits))),
    "pickle": _plain,
    "sqlite wire_rows": _table_of_database("wire_rows"),
    "sqlite traces": _table_of_database("traces"),
    "inspect": lambda file, names, limits: Content(
        rows=json_members(file, "samples/", limits.nbytes // 16), tell=file.tell
    ),
    "martingale": _table_of_database(
        "sequences", Linked("llm_revisions"), Linked("scores", "sequence_digest", "digest")
    ),
}
_STREAMED = ("json lines", "event stream", "csv")
"""Containers that are read from front to back."""
_ENDINGS = {
    ".jsonl": "json lines", ".ndjson": "json lines", ".sse": "event stream", ".json": "json", ".parquet": "parquet",
    ".csv": "csv", ".npz": "npz",
    ".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow",
    ".safetensors": "safetensors", ".pt": "torch", ".pth": "torch", ".pkl": "pickle", ".pickle": "pickle", ".dp": "pickle",
}  # fmt: skip
"""Ending of a file -> its container, for files that no format knows."""


def container_of(path: str) -> str | None:
    """The container that the name of a file stands for, compressed or not; None where it is none that is read.

    >>> container_of("rows.jsonl.gz")
    'json lines'
    """
    return _ENDINGS.get(PurePosixPath(plain_name(path)).suffix.lower())


def json_members(file: io.BufferedReader, folder: str, most: int) -> Iterator[Any]:
    """The objects in the members of a folder of the archive, in their order. most: bytes that one member may unpack to.

    A member that is larger, damaged or no JSON is an Unreadable. UnsafeFile for what is no archive.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            inside = (member for member in archive.infolist() if member.filename.startswith(folder))
            for member in (member for member in inside if member.filename.endswith(".json")):
                yield _object(file, archive, member, most)
    except (zipfile.BadZipFile, ValueError) as error:
        raise UnsafeFile(f"it is no zip archive ({str(error)[:80]})") from error


def _object(file: io.BufferedReader, archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> Any:
    try:
        value = loaded(_unpacked(file, archive, member, most))
    except (zipfile.BadZipFile, zlib.error, struct.error, ValueError, EOFError, RuntimeError, OSError) as error:
        return Unreadable(f"its member {member.filename[:80]!r} cannot be read ({str(error)[:120]})")
    return (
        value if isinstance(value, dict) else Unreadable(f"its member {member.filename[:80]!r} is JSON, but no object")
    )


def _unpacked(file: io.BufferedReader, archive: zipfile.ZipFile, member: zipfile.ZipInfo, most: int) -> bytes:
    if member.file_size > most:
        raise UnsafeFile(
            f"its member {member.filename[:80]!r} decodes to {member.file_size} bytes; at most {most} are allowed"
        )
    if member.compress_type != _ZSTD:
        with archive.open(member) as packed:
            return packed.read(member.file_size + 1)
    file.seek(member.header_offset)
    signature, flags, method, name, extra = _LOCAL_HEADER.unpack(file.read(_LOCAL_HEADER.size))
    if signature != b"PK\x03\x04" or method != _ZSTD or flags & _ENCRYPTED:
        raise ValueError("it lies elsewhere than the archive says, or is encrypted")
    file.seek(name + extra, io.SEEK_CUR)
    with pa.CompressedInputStream(
        pa.BufferReader(file.read(member.compress_size)), "zstd"
    ) as stream:  # Python 3.11 knows no zstd
        data: bytes = stream.read(member.file_size + 1)
    if len(data) != member.file_size or zlib.crc32(data) != member.CRC:
        raise UnsafeFile(
            f"its member {member.filename[:80]!r} does not unpack to what the archive states: it is damaged"
        )
    return data
