"""PipeEnd: our end of a pipe, by its number and by what it is.

A program may close all descriptors that it did not open itself (os.closerange, a daemon's start). Its next file then has the
number of our pipe. A frame would go into that file, and a close of ours would close it. So each use looks first.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_PIECE = 1 << 16


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
