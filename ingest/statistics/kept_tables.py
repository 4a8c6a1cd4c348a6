"""What was made of a run's statistics, kept in the cache from one start to the next: tables that name what each row is made of.

A row is used only where its name is the one it would get today, so that a kept table is never stale, only incomplete: names are
made of the committed digests of files and of what tells on disk that they are the files whose digests were checked.
"""

import hashlib
import threading
from collections.abc import Iterable, Mapping
from functools import cache as once
from pathlib import Path

import polars as pl
import pyarrow as pa

import ratioscope.metrics

from ..files.cache import Cache, cache_key

MADE_OF = "_made_of"
FEW_STEPS = 512
"""Runs of fewer steps are read as fast as what was kept of them."""
WORTH_KEEPING = 64
"""New steps after which a growing run's tables are kept anew."""


@once
def definitions() -> str:
    """A digest of the source of metrics: tables that were made by older definitions are not read."""
    return digest_of(map(Path, ratioscope.metrics.__path__))


def digest_of(folders: Iterable[Path]) -> str:
    """A digest of the Python files in the folders and in all folders below them, by their names and bytes."""
    total = hashlib.sha256()
    for folder in folders:
        for file in sorted(folder.rglob("*.py")):
            total.update(f"{file.relative_to(folder).as_posix()}\0".encode())
            total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def name_of(*parts: object) -> str:
    """A short name for equal parts."""
    return hashlib.sha256("\0".join(map(str, parts)).encode("utf-8", "surrogateescape")).hexdigest()[:32]


class KeptTables:
    """Tables of one run by what they show."""

    def __init__(self, cache: Cache, run: Path) -> None:
        self._cache = cache
        self._run = str(run.resolve())

    def load(self, what: str, names: Mapping[int, str] | frozenset[str]) -> pl.DataFrame | None:
        """The rows whose names are among these; None where nothing is kept. what: which table."""
        kept = self._cache.load(self._key(what))
        if kept is None or MADE_OF not in kept.column_names:
            return None
        try:
            frame = pl.from_arrow(kept)
            assert isinstance(frame, pl.DataFrame)
            wanted = set(names.values()) if isinstance(names, Mapping) else names
            return frame.filter(pl.col(MADE_OF).is_in(list(wanted)))
        except (pl.exceptions.PolarsError, pa.ArrowException):
            return None

    def keep(self, what: str, frame: pl.DataFrame) -> None:
        """Keeps the table, in a thread of its own: nobody waits for it."""
        threading.Thread(target=self._store, args=(self._key(what), frame), name="ratioscope-keep").start()

    def _store(self, key: str, frame: pl.DataFrame) -> None:
        self._cache.store(key, frame.with_columns(pl.col(MADE_OF).cast(pl.Categorical)).to_arrow())

    def _key(self, what: str) -> str:
        return cache_key((definitions(), self._run, what))
