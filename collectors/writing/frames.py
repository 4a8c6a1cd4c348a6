"""Frames: what a trainer's process sends to its writer's process over a pipe. A frame is a JSON object and some bytes.

Both ends are ours and of the same version. A frame contains no code.
PipeEnd: our end of a pipe, by its number and by what it is.

A program may close all descriptors that it did not open itself (os.closerange, a daemon's start). Its next file then has the
number of our pipe. A frame would go into that file, and a close of ours would close it. So each use looks first.
"""

from __future__ import annotations

import errno
import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_HEAD = struct.Struct("<IQ")  # bytes of the JSON object, bytes that follow it

_PIECE = 1 << 16


def write_frame(write: Callable[[memoryview], int], message: Mapping[str, Any], body: Any = b"") -> None:
    """Writes a frame, and waits while the pipe is full. write: returns bytes written. body: any buffer of bytes."""
    head = json.dumps(message).encode()
    rest = memoryview(body).cast("B")
    _write_all(write, memoryview(_HEAD.pack(len(head), len(rest)) + head))
    _write_all(write, rest)


def read_frame(descriptor: int) -> tuple[dict[str, Any], bytearray] | None:
    """The next frame; None at the end of the pipe, also if it ends inside a frame."""
    head = _read_exactly(descriptor, _HEAD.size)
    if head is None:
        return None
    head_bytes, body_bytes = _HEAD.unpack(head)
    message, body = _read_exactly(descriptor, head_bytes), _read_exactly(descriptor, body_bytes)
    return None if message is None or body is None else (json.loads(message), body)


def _write_all(write: Callable[[memoryview], int], left: memoryview) -> None:
    while left:
        left = left[write(left) :]


def _read_exactly(descriptor: int, nbytes: int) -> bytearray | None:
    data = bytearray(nbytes)
    left = memoryview(data)
    while left:
        got = os.readv(descriptor, [left])
        if not got:
            return None
        left = left[got:]
    return data


@dataclass(frozen=True)
class PipeEnd:
    """One end of a pipe."""

    descriptor: int
    """The operating system's number of it."""
    identity: tuple[int, int]
    """Device and inode of the pipe: no other open file has both."""

    @classmethod
    def of(cls, descriptor: int) -> PipeEnd:
        """The end that this number is now."""
        found = os.fstat(descriptor)
        return cls(descriptor, (found.st_dev, found.st_ino))

    def is_ours(self) -> bool:
        """False if the number is free, or that of another file by now."""
        try:
            found = os.fstat(self.descriptor)
        except OSError:
            return False
        return (found.st_dev, found.st_ino) == self.identity

    def write(self, data: Any) -> int:
        """Bytes written, after a wait while the pipe is full. OSError where the end is no longer ours."""
        if not self.is_ours():
            raise OSError(errno.EBADF, "the pipe to the writer's process was closed by the program")
        return os.write(self.descriptor, data)

    def lines(self) -> Iterator[bytes]:
        """Whole lines, until the other end is closed or this one is no longer ours."""
        left = b""
        while self.is_ours() and (data := os.read(self.descriptor, _PIECE)):
            *whole, left = (left + data).split(b"\n")
            yield from whole

    def close(self) -> None:
        """Closes the end if it is ours."""
        if self.is_ours():
            os.close(self.descriptor)
