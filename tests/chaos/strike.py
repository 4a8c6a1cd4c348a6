"""The n-th call of the writer into the file system, or into Arrow, goes wrong: it raises, or the process dies there.

Calls are seen by a profile function, so that no list of them has to be kept up with the code; Arrow's are compiled and not seen
by it, so that the modules that make them are given a watched `pa` and `pc`.
"""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, ModuleType
from typing import Any, Literal

import pyarrow as pa

from ratioscope.collectors.batch import records, token_columns
from ratioscope.collectors.writing import sampling, sink, step_statistics, writer
from ratioscope.metrics.engines import arrow_columns, join, numpy_engine

FILE_CALLS = frozenset(
    {"open", "write", "fsync", "close", "replace", "link", "mkdir", "unlink", "remove", "ftruncate", "stat", "lstat",
     "fstat", "statvfs", "scandir"}
)  # fmt: skip
WRITERS = (records, sampling, sink, step_statistics, token_columns, writer)
ENGINES = (arrow_columns, join, numpy_engine)
"""Modules that call Arrow in the writer's thread; those that compute statistics do it thousands of times a step."""
_MODULES = ("pa", "pc", "pq")
_MAKERS = ("Table", "RecordBatch", "ListArray")

When = Literal["before", "after"]
"""Whether what was called is done when it goes wrong: an error may be told of what succeeded."""
Act = Callable[[], None]


@dataclass
class Calls:
    """Counts calls and acts at the n-th of them, from 1; 0: at none. Once: what a profile function raises unsets it."""

    nth: int
    when: When
    act: Act
    seen: int = 0

    def profile(self, frame: FrameType, event: str, called: Any) -> None:
        """For sys.setprofile and threading.setprofile."""
        wanted = "c_call" if self.when == "before" else "c_return"
        if event == wanted and _is_file_call(called):
            self.count()

    def count(self) -> None:
        self.seen += 1
        if self.seen == self.nth:
            self.act()


def kill() -> None:
    """Ends this process at once, as the out-of-memory killer does."""
    os.kill(os.getpid(), signal.SIGKILL)


def raising(error: BaseException) -> Act:
    def act() -> None:
        raise error

    return act


def errors() -> list[BaseException]:
    """What file systems and Arrow raise."""
    return [
        OSError(errno.EIO, "Input/output error"),
        OSError(errno.ENOSPC, "No space left on device"),
        OSError(errno.ESTALE, "Stale file handle"),
        PermissionError(errno.EACCES, "Permission denied"),
        pa.ArrowInvalid("invalid"),
        pa.ArrowMemoryError("malloc of size 64 failed"),
        MemoryError(),
    ]


def do_not_sync() -> None:
    """From here on fsync is a look at the file: as many calls, without the wait for the disk. For a kill, which leaves the
    page cache as it is, nothing else changes."""
    os.fsync = os.fstat  # type: ignore[assignment]


@contextmanager
def unsynced() -> Iterator[None]:
    """In here nothing waits for the disk."""
    real = os.fsync
    do_not_sync()
    try:
        yield
    finally:
        os.fsync = real


@contextmanager
def file_calls(calls: Calls) -> Iterator[None]:
    """Watches the file system calls of threads that begin in here."""
    threading.setprofile(calls.profile)
    try:
        yield
    finally:
        threading.setprofile(None)


@contextmanager
def arrow_calls(calls: Calls, users: tuple[ModuleType, ...] = WRITERS) -> Iterator[None]:
    """Watches what these modules ask of Arrow in the writer's thread."""
    held = [(user, name, getattr(user, name)) for user in users for name in _MODULES if hasattr(user, name)]
    for user, name, module in held:
        setattr(user, name, _Watched(module, calls))
    try:
        yield
    finally:
        for user, name, module in held:
            setattr(user, name, module)


class _Watched:
    """A module, or a class that is only called for its constructors, whose functions are counted."""

    def __init__(self, of: Any, calls: Calls) -> None:
        self._of, self._calls = of, calls

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._of, name)
        if name in _MAKERS:
            return _Watched(found, self._calls)
        if isinstance(found, type | ModuleType) or not callable(found):
            return found
        return lambda *values, **named: self._called(found, values, named)

    def _called(self, function: Callable[..., Any], values: Any, named: Any) -> Any:
        is_ours = threading.current_thread().name == "ratioscope-writer"
        if is_ours and self._calls.when == "before":
            self._calls.count()
        result = function(*values, **named)
        if is_ours and self._calls.when == "after":
            self._calls.count()
        return result


def _is_file_call(called: Any) -> bool:
    if called is io.open:
        return True
    return getattr(called, "__module__", None) == os.name and getattr(called, "__name__", "") in FILE_CALLS


def watch_all(calls: Calls) -> None:
    """Watches this thread too, for good."""
    threading.setprofile(calls.profile)
    sys.setprofile(calls.profile)
