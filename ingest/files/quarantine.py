"""Files that are set aside while reading, each with its reason. No damaged file is fatal, and none is skipped silently."""

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ratioscope.errors import RatioscopeError, SourceError, Unread

from ..remote.store import Unreachable

SetAside = Callable[[str, str], None]
"""A function of the path of a file that will not be read, and of the reason."""


@dataclass
class CountedSetAside:
    """A SetAside that counts. A result computed meanwhile lacks a file, and must not be kept under the file's digest."""

    set_aside: SetAside
    times: int = 0
    """Files that were set aside, each as often as it was tried."""

    def __call__(self, path: str, reason: str) -> None:
        self.times += 1
        self.set_aside(path, reason)


@dataclass(frozen=True, order=True)
class Quarantined:
    """A file of the run that is not read: its path relative to the run, and the reason in one sentence."""

    path: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", printable(self.path))
        object.__setattr__(self, "reason", printable(self.reason))


def printable(text: str) -> str:
    """The text with each half of a surrogate pair as its escape. JSON and file names allow halves; Arrow and polars do not."""
    return text.encode("utf-8", "backslashreplace").decode()


DAMAGE = (
    pa.ArrowException, OSError, ValueError, ArithmeticError, MemoryError, RecursionError, pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)  # fmt: skip


@contextmanager
def faults_set_aside(path: str, set_aside: SetAside) -> Iterator[None]:
    """Sets the file aside for what is wrong with it. A store that does not answer says nothing about a file: that goes on up."""
    try:
        yield
    except Unreachable:
        raise
    except RatioscopeError as error:
        set_aside(path, str(error))


@contextmanager
def named_reasons() -> Iterator[None]:
    """Turns every error of reading a file into a SourceError, so that the file can be set aside; Unread if the store failed.

    The place of the damage decides the error: pyarrow raises OSError, ValueError, MemoryError or an error of its own; polars
    raises an error of its own, or panics.
    """
    try:
        yield
    except RatioscopeError:
        raise
    except FileNotFoundError as error:
        raise Unread("a commit names it, but it is not there: deleted, or not yet copied") from error
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # Arrow's own have no number
            raise Unread(f"it cannot be read: {error.strerror}; it is read again once that works") from error
        text = str(error).strip() or type(error).__name__
        raise SourceError(f"it cannot be read as Parquet: {text.splitlines()[0][:200]}") from error
