"""Compressed files: what a `.gz` or `.zst` holds, as a file. Not one byte more is unpacked than is allowed."""

import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from ratioscope.errors import UnsafeFile

MOST_TIMES = 1000
"""The most that a file that is read as a stream may unpack to, as a multiple of its size; deflate itself ends at 1,032."""
_SMALL = 1 << 24
_BUFFER = 1 << 20


def _zstd(file: Any) -> Any:
    return pa.CompressedInputStream(file, "zstd")  # Python 3.11 knows no zstd


_UNPACK: dict[str, Callable[[Any], Any]] = {".gz": gzip.open, ".zst": _zstd, ".zstd": _zstd}
_FAULTS = (EOFError, OSError, ValueError, zlib.error, pa.ArrowException)


def plain_name(path: str) -> str:
    """The name without the ending of its compression.

    >>> plain_name("step_3/rows.jsonl.gz")
    'step_3/rows.jsonl'
    """
    return path[: -len(_ending(path))] if _ending(path) else path


def _ending(path: str) -> str:
    suffix = PurePosixPath(path).suffix
    return suffix if suffix.lower() in _UNPACK else ""


def unpacked(file: io.BufferedReader, name: str, size: int) -> io.BufferedReader:
    """The content as a stream, where the name ends like that of a compressed file; else the file. size: its bytes."""
    unpack = _UNPACK.get(_ending(name).lower())
    if unpack is None:
        return file
    return io.BufferedReader(_Unpacked(unpack(file), max(_SMALL, size * MOST_TIMES)), _BUFFER)


@contextmanager
def laid_out(file: io.BufferedReader, name: str, most: int) -> Iterator[Any]:
    """The content as a file that exists as long as it is read, for what is not read from front to back. most: its bytes."""
    unpack = _UNPACK.get(_ending(name).lower())
    if unpack is None:
        yield file
        return
    with tempfile.NamedTemporaryFile(prefix="ratioscope-unpacked-") as whole:
        shutil.copyfileobj(io.BufferedReader(_Unpacked(unpack(file), most), _BUFFER), whole, _BUFFER)
        whole.flush()
        whole.seek(0)
        yield whole


class _Unpacked(io.RawIOBase):
    """The bytes of a stream that unpacks. Whatever is wrong with it is an UnsafeFile."""

    def __init__(self, stream: Any, most: int) -> None:
        self._next = getattr(stream, "read1", stream.read)  # what lies before a cut is given, one piece after the other
        self._most, self._read = most, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._next(len(buffer))
        except _FAULTS as error:
            words = " ".join(str(error).split())[:80] or type(error).__name__
            raise UnsafeFile(f"its compressed data is damaged or cut off ({words})") from error
        self._read += len(data)
        if self._read > self._most:
            raise UnsafeFile(f"it unpacks to more than {self._most} bytes; unpack it yourself if that is right")
        buffer[: len(data)] = data
        return len(data)
