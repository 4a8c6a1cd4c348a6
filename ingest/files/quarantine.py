"""What was set aside while reading, and why. Nothing set aside is fatal, and nothing is set aside silently."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import polars as pl
import pyarrow as pa

from ratioscope.errors import RatioscopeError, SourceError

SetAside = Callable[[str, str], None]
"""Called with the path of a file that is not read, and the reason."""


@dataclass(frozen=True, order=True)
class Quarantined:
    """A file of the run that is not read: its path relative to the run, and the reason in one sentence."""

    path: str
    reason: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", printable(self.path))
        object.__setattr__(self, "reason", printable(self.reason))


def printable(text: str) -> str:
    """The text as every table can hold it: half a surrogate pair, which JSON and file names allow, as its escape."""
    return text.encode("utf-8", "backslashreplace").decode()


DAMAGE = (
    pa.ArrowException, OSError, ValueError, ArithmeticError, MemoryError, RecursionError, pl.exceptions.PolarsError,
    pl.exceptions.PanicException,
)  # fmt: skip


@contextmanager
def named_reasons() -> Iterator[None]:
    """Turns whatever reading a foreign file raises into a SourceError, so that its reader can set it aside.

    pyarrow raises OSError, ValueError, MemoryError or one of its own for a damaged file, by where the damage lies; polars one of
    its own, or panics.
    """
    try:
        yield
    except RatioscopeError:
        raise
    except FileNotFoundError as error:
        raise SourceError("a commit names it, but it is not there: deleted, or not yet copied") from error
    except DAMAGE as error:
        raise SourceError(f"it cannot be read as Parquet: {_first_line(error)}") from error


def _first_line(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:200]
