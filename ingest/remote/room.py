"""Room for copies of files of runs on stores: a budget over all copies, and a reserve that stays free on the disk."""

import os
import shutil
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.layout import OVERALL, READINGS, SCALARS, STATISTICS, TOKENS

from .store import Unreachable

BUDGET_VARIABLE = "RATIOSCOPE_REMOTE_CACHE"
MOST_BYTES = 20 << 30
"""Bytes of all copies at most, unless $RATIOSCOPE_REMOTE_CACHE states another number of bytes. A convention."""
RESERVE = 1 << 30
"""Bytes that stay free on the disk of the cache."""
MEASURED_EVERY = 1 << 28
"""Bytes that are fetched between two measurements of all copies."""
IN_USE = 600.0
"""Seconds after its last use in which a copy is not removed: a reader may be at work on it."""
_UNFINISHED = 86_400.0


class NoRoom(Unreachable):
    """The disk of the cache is full."""


def budget() -> int:
    """Bytes that all copies may take."""
    stated = os.environ.get(BUDGET_VARIABLE, "")
    return int(stated) if stated.isascii() and stated.isdigit() else MOST_BYTES


@dataclass
class Room:
    """Room in the folder of all copies. All copies are measured when a part of the budget was fetched, not for each file."""

    mirrors: Path
    """The folder of all copies."""
    _unmeasured: int = MEASURED_EVERY
    """Bytes that were fetched since the copies were last measured."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def demand(self, nbytes: int) -> None:
        """Makes room for so many bytes: removes the copies that were not used for longest. NoRoom: the disk is full."""
        with self._lock:
            self._unmeasured += nbytes
            is_due = self._unmeasured >= MEASURED_EVERY
            self._unmeasured = 0 if is_due else self._unmeasured
        if is_due:
            trim(self.mirrors, budget() - nbytes)
        demand_disk(self.mirrors, nbytes)


def demand_disk(mirrors: Path, nbytes: int) -> None:
    """NoRoom unless the disk has so many bytes more than the reserve."""
    free = shutil.disk_usage(mirrors).free
    if free < nbytes + RESERVE:
        raise NoRoom(
            f"the disk of {mirrors} has {free / 1e9:,.1f} GB left, and {nbytes / 1e9:,.1f} GB are to be fetched; wanted"
            f" {RESERVE / 1e9:,.1f} GB more than that: delete {mirrors}, or set XDG_CACHE_HOME to a larger disk"
        )


def trim(mirrors: Path, most: int) -> None:
    """Removes copies, the least recently used first, until all take at most so many bytes. Those in use stay."""
    now, files = time.time(), sorted(_copies(mirrors))
    excess = sum(nbytes for _, nbytes, _ in files) - most
    for used, nbytes, path in files:
        is_unfinished = path.name.startswith(".") and now - used > _UNFINISHED
        if is_unfinished or (excess > 0 and now - used > IN_USE):
            with suppress(OSError):
                path.unlink()
                excess -= nbytes


def note_use(path: Path, status: os.stat_result) -> None:
    """Notes that a copy is used now. Its time of change stays, because readers know a file by it."""
    if time.time() - status.st_atime > IN_USE / 10:
        with suppress(OSError):
            os.utime(path, ns=(time.time_ns(), status.st_mtime_ns))


def _copies(mirrors: Path) -> Iterator[tuple[float, int, Path]]:
    """(time of last use, bytes, path) of each copy of a Parquet file. Logs are small, and stay."""
    paths = (
        path for part in (TOKENS, STATISTICS, SCALARS, OVERALL, READINGS) for path in mirrors.glob(f"*/*/{part}/**/*")
    )
    for path in paths:
        with suppress(OSError):
            if path.is_file():
                status = path.stat()
                yield status.st_atime, status.st_size, path
