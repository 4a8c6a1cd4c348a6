"""The wall before strangers' bytes: whatever decodes them runs in a child process that can take little and reach nothing.

The child is a fork that ends with this process. Its memory, its processor time between two answers, its files on disk and their
number are bounded by the system; on Linux it can open no socket and start no program. It answers in frames of bytes, which are
never pickles. A child that exceeds a bound is ended, and the file that it was reading is known.
"""

import fcntl
import gc
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

from ratioscope.errors import ConfigError, FieldError, RatioscopeError, SourceError, UnsafeFile

from .confinement import BESIDE, IS_BOUND, SECONDS, FileLimits, allow, confine, too_large

_Rows = TypeVar("_Rows")
_MOST_FRAME = 1 << 31
_PIPE = 1 << 20
_LENGTH = struct.Struct("<Q")
_END, _ANSWER = b".", b"="
_WATCHED = 0.2
"""Seconds between two looks at the memory of a child that the system does not bound."""
MOST_SMALL_ROWS = 1 << 18
"""Rows that any file may have. A larger number needs a byte of the file for each row: run lengths of some KB claim millions."""
REPEATS = "it repeats few values; to import it all the same, write it anew without compression"
_SMALL, _TIMES = 1 << 28, 1000
"""Bytes that the rows of any file may take, and the multiple of the bytes of a larger file."""
_OF_A_LOOK = FileLimits(nbytes=1 << 30)
"""The most that finding out the kind of a file may take."""


class Ended(SourceError):
    """The child was ended, or ended itself, before it had answered. The words go on behind the name of its file."""


def apart(work: Callable[[], Iterable[bytes]], limits: FileLimits, mapped: int = 0) -> Iterator[memoryview]:
    """The frames that `work` yields in a child. Errors of ours pass. Ended where the child exceeded a bound or failed.

    An empty frame is no answer: all before it have arrived, however the child ends.
    mapped: bytes of the largest file whose pages it may show as its memory.
    """
    parent, (own, theirs) = os.getpid(), os.pipe()
    with warnings.catch_warnings():  # on threads, which a fork does not have: the child takes no lock of theirs
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(own)
        _answer(theirs, work, limits, mapped, parent)
    os.close(theirs)
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(own, fcntl.F_SETPIPE_SZ, _PIPE)
    status: int | None = None
    try:
        with open(own, "rb", buffering=1 << 20) as answers:
            yield from _frames(answers, child, limits)
    except EOFError:
        _, status = os.waitpid(child, 0)
        raise Ended(_why(-os.waitstatus_to_exitcode(status), limits)) from None
    finally:
        if status is None:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def each_apart(ask: Callable[[Path], Any], files: Sequence[Path]) -> Iterator[Any]:
    """The answer for each file, as JSON holds it; None where the child that looked for it was ended."""
    done = 0
    while done < len(files):
        try:
            for frame in apart(lambda: _each(ask, files[done:]), _OF_A_LOOK):  # noqa: B023
                done += 1
                yield json.loads(bytes(frame))
        except Ended:
            done += 1
            yield None


def _each(ask: Callable[[Path], Any], files: Iterable[Path]) -> Iterator[bytes]:
    for file in files:
        allow(file.stat().st_size)
        yield json.dumps(ask(file)).encode()
        yield b""


def bounded(rows: Iterator[_Rows], size: int) -> Iterator[_Rows]:
    """The rows; UnsafeFile where they are more than a file of so many bytes may have."""
    for number, row in enumerate(rows):
        if number >= max(MOST_SMALL_ROWS, size):
            raise UnsafeFile(f"it has more than {number} rows in {size} bytes, less than a byte for a row: {REPEATS}")
        yield row


def most_told(size: int) -> int:
    """The bytes that the rows of a file of this size may take: a file of few bytes can repeat a row for ever."""
    return max(_SMALL, _TIMES * size)


def _answer(into: int, work: Callable[[], Iterable[bytes]], limits: FileLimits, mapped: int, parent: int) -> None:
    """The life of the child. It never returns."""
    try:
        gc.freeze()  # an object of the parent that is collected here would close a file of the same number
        with open(into, "wb", buffering=1 << 16) as answers:
            end = json.dumps(_fault_of(answers, work, limits, mapped, parent)).encode()
            answers.write(_LENGTH.pack(len(end) + 1) + _END + end)
    finally:
        os._exit(0)


def _fault_of(
    answers: IO[bytes], work: Callable[[], Iterable[bytes]], limits: FileLimits, mapped: int, parent: int
) -> list[str]:
    """Writes the answers. Returns the kind and the words of the error that ended it; empty without one."""
    try:
        confine(limits, mapped, parent)
        for frame in work():
            if frame:
                answers.write(_LENGTH.pack(len(frame) + 1) + _ANSWER)
                answers.write(frame)
            else:
                answers.flush()
    except MemoryError:
        return [Ended.__name__, str(too_large(limits))]
    except RatioscopeError as error:
        return [type(error).__name__, str(error)]
    except Exception as error:  # a fault of ours or of a package: its words are all that can be passed on
        return [Ended.__name__, f"it cannot be read ({type(error).__name__}: {str(error)[:200]})"]
    return []


def _frames(answers: IO[bytes], child: int, limits: FileLimits) -> Iterator[memoryview]:
    """The frames up to the last one. EOFError where it lacks."""
    looked = 0.0
    while True:
        if not IS_BOUND and time.monotonic() > looked + _WATCHED:
            _watch(answers, child, limits)
            looked = time.monotonic()
        head = answers.read(_LENGTH.size)
        length = _LENGTH.unpack(head)[0] if len(head) == _LENGTH.size else _MOST_FRAME + 1
        if len(head) == _LENGTH.size and length > _MOST_FRAME:
            os.kill(child, signal.SIGKILL)
        if length > _MOST_FRAME or len(frame := answers.read(length)) < length:
            raise EOFError
        if frame[:1] == _END:
            break
        yield memoryview(frame)[1:]
    if said := json.loads(frame[1:]):
        raise _error(*said)


def _error(kind: str, words: str) -> RatioscopeError:
    """The error of ours of this name; of one that is made of more than words, an error of a source."""
    named: Any = {"Ended": Ended, "FieldError": FieldError, "ConfigError": ConfigError, "UnsafeFile": UnsafeFile}
    return named.get(kind, SourceError)(words)  # type: ignore[no-any-return]


def _why(ended_by: int, limits: FileLimits) -> str:
    name = signal.Signals(ended_by).name if ended_by > 0 else f"exit code {-ended_by}"
    if ended_by == signal.SIGXCPU:
        return (
            f"its decoder took more than {SECONDS} seconds of processor time, and one for each megabyte, without giving a"
            " row; write it anew in another format"
        )
    if ended_by in (signal.SIGKILL, signal.SIGABRT):
        return f"{too_large(limits)} (its decoder was ended: {name})"
    return f"its decoder was ended ({name}): the file is damaged, or made to do harm; write it anew in another format"


def _watch(answers: IO[bytes], child: int, limits: FileLimits) -> None:
    """Waits for an answer, and ends a child whose memory the system does not bound once it takes more than it may."""
    while True:
        said = subprocess.run(["ps", "-o", "rss=", "-p", str(child)], capture_output=True, text=True, check=False)
        if int(said.stdout.strip() or 0) << 10 > limits.nbytes + 2 * BESIDE:
            os.kill(child, signal.SIGKILL)
            return
        if select.select([answers], [], [], _WATCHED)[0]:
            return
