"""Copies of a run's tables in the cache, for the next start. Each row has a name made of everything it was computed from.

A row is used only if its name is the one it would get today, so a copy can be incomplete but never stale. Names are made of the
committed digests of the files, and of the signatures (inode, size, mtime) that the files had when their digests were checked.
"""

import hashlib
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import polars as pl
import pyarrow as pa

import ratioscope.metrics

from ..files.cache import Cache, cache_key

MADE_OF = "_made_of"
"""Column with the name of what the row was computed from."""
NO_ROWS = "_no_rows"
"""Column that is true in the one row of a step of which a table has no rows."""
FEW_STEPS = 512
"""Reading a copy is no faster for a run of fewer steps."""


@once
def definitions() -> str:
    """A digest of the source of metrics/: copies made by other definitions are not read."""
    return digest_of(map(Path, ratioscope.metrics.__path__))


def digest_of(folders: Iterable[Path]) -> str:
    """A digest of the names and bytes of all Python files in the folders and below."""
    total = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            total.update(f"{file.relative_to(folder).as_posix()}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def name_of(*parts: object) -> str:
    """A short name, equal for equal parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class KeptTables:
    """The copies of one run."""

    def __init__(self, cache: Cache, run: Path) -> None:
        self._cache = cache
        self._run = str(run.resolve())

    def load(self, what: str, names: Iterable[str]) -> pl.DataFrame | None:
        """The rows of a copy whose names are among these; None where there is no copy. what: which table."""
        table = self._cache.load(self._key(what))
        if table is None or MADE_OF not in table.column_names:
            return None
        try:
            frame = pl.DataFrame(table)
            return frame.filter(pl.col(MADE_OF).is_in(list(set(names))))
        except (pl.exceptions.PolarsError, pa.ArrowException):
            return None

    def keep(self, what: str, frame: pl.DataFrame) -> None:
        """Writes a copy in a thread of its own, so that nobody waits for it."""
        threading.Thread(target=self._store, args=(self._key(what), frame), name="ratioscope-keep").start()

    def _store(self, key: str, frame: pl.DataFrame) -> None:
        self._cache.store(key, frame.with_columns(pl.col(MADE_OF).cast(pl.Categorical)).to_arrow())

    def _key(self, what: str) -> str:
        return cache_key((definitions(), self._run, what))


@dataclass
class KeptTable:
    """The copy of one table of a run."""

    tables: KeptTables
    what: str
    """Name of the table."""
    worth: int
    """New steps after which the copy of a growing run is written again."""
    steps: int | None = None
    """Number of steps that the copy covers; None where no copy was read or written."""

    def is_worth_reading(self, steps: int) -> bool:
        """True if a run of so many steps is long enough."""
        return steps >= FEW_STEPS

    def load(self, names: Iterable[str]) -> pl.DataFrame | None:
        """The rows whose names are among these; None where there is no copy."""
        return self.tables.load(self.what, names)

    def is_due(self, steps: int) -> bool:
        """True if a run of so many steps has grown enough since the copy was written."""
        return steps - (self.steps or 0) >= (FEW_STEPS if self.steps is None else self.worth)

    def keep(self, frame: pl.DataFrame | None, steps: int) -> None:
        """Writes the copy; None: no row has a name, so there is nothing to write."""
        self.steps = steps
        if frame is not None:
            self.tables.keep(self.what, frame)
