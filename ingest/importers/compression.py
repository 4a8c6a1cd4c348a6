"""Compressed files: what a `.gz` or `.zst` holds, as a file. Not one byte more is unpacked than is allowed."""

import gzip
import io
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa

from ratioscope.errors import UnsafeFile

MOST_TIMES = 1000
"""The most that a file that is read as a stream may unpack to, as a multiple of its size; deflate itself ends at 1,032."""
MOST_TIMES_ON_DISK = 100
"""The same for a file that is laid out on disk to be read. Pickles and Parquet files of real runs shrink to a half or a tenth."""
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
    return io.BufferedReader(
        _Unpacked(unpack(file), max(_SMALL, size * MOST_TIMES), f"{MOST_TIMES} times its own {size}"), _BUFFER
    )


@contextmanager
def laid_out(file: io.BufferedReader, name: str, size: int, most: int) -> Iterator[Any]:
    """The content as a file that exists as long as it is read, for what is not read from front to back.

    size: bytes of the file. most: bytes that it may unpack to, whatever its size. It never takes more than half of the free disk.
    """
    unpack = _UNPACK.get(_ending(name).lower())
    if unpack is None:
        yield file
        return
    with tempfile.TemporaryFile() as whole:  # without a name, so that nothing stays of a process that is ended
        folder = Path(tempfile.gettempdir())
        bounds = {
            most: "the most that one file may take",
            max(_SMALL, size * MOST_TIMES_ON_DISK): f"{MOST_TIMES_ON_DISK} times its own {size}",
            shutil.disk_usage(folder).free // 2: f"half of what is free in {folder}; TMPDIR names another folder",
        }
        least = min(bounds)
        stream = _Unpacked(unpack(file), least, bounds[least])
        shutil.copyfileobj(io.BufferedReader(stream, _BUFFER), whole, _BUFFER)
        whole.flush()
        whole.seek(0)
        yield whole


class _Unpacked(io.RawIOBase):
    """The bytes of a stream that unpacks. Whatever is wrong with it is an UnsafeFile."""

    def __init__(self, stream: Any, most: int, why: str) -> None:
        self._next = getattr(stream, "read1", stream.read)  # what lies before a cut is given, one piece after the other
        self._most, self._read, self._why = most, 0, why

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
            raise UnsafeFile(
                f"it unpacks to more than {self._most} bytes ({self._why}); unpack it yourself if that is right"
            )
        buffer[: len(data)] = data
        return len(data)
