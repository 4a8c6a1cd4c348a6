"""A copy of a run on a store, in the user's cache: a run folder that readers open like any other.

Commit logs are followed: only bytes that were appended are read again. Parquet files are fetched when a reader needs them, once,
and are checked by readers against the digests in the logs. The store is as untrusted as a stranger's folder: a name on it
decides nothing but the name of a file in the copy, and every size is bounded before a file is fetched.
Room for copies of files of runs on stores: a budget over all copies, and a reserve that stays free on the disk.
"""

import fcntl
import os
import re
import shutil
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ratioscope.errors import SourceError
from ratioscope.inside import parts
from ratioscope.layout import OVERALL, READINGS, SCALARS, STATISTICS, TOKENS, TOPK
from ratioscope.metrics.digits import size_on_disk
from ratioscope.whole_file import whole_file

from .log_reading import NAME, LogReading
from .mirror_state import load, save
from .side_by_side import side_by_side
from .store import Store, Unreachable

MOST_FILE = 1 << 32
"""Bytes of one Parquet file at most."""
_MORE = 1 << 26
"""Bytes by which a file may exceed its commit: the newest statistics may have grown since."""
_END, _TRAILER = 1 << 16, 8
"""Bytes at the end of a Parquet file that nearly always hold its footer, and those that state the footer's length."""
_GUESS = 1 << 20
"""Bytes of a file of unknown size."""
_LOCKS = 64
_FILE = re.compile(
    rf"(?:(?:{TOKENS}|{TOPK})/step=-?\d{{1,19}}|{STATISTICS}|{SCALARS}|{OVERALL}|{READINGS}/[^/]+/step=-?\d{{1,19}})/([^/]+\.parquet)"
)

BUDGET_VARIABLE = "RATIOSCOPE_REMOTE_CACHE"
MOST_BYTES = 20 << 30
"""Bytes of all copies at most, unless $RATIOSCOPE_REMOTE_CACHE states another number of bytes. A convention."""
RESERVE = 1 << 30
"""Bytes that stay free on the disk of the cache."""
IN_USE = 600.0
"""Seconds after its last use in which a copy is not removed: a reader may be at work on it."""
_UNFINISHED = 86_400.0
MEASURED_EVERY = 1 << 28
"""Bytes that are fetched between two measurements of all copies."""


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


@dataclass
class Mirror:
    """The copy of one run. Several threads and processes may use it."""

    root: Path
    """The run folder of the copy."""
    store: Store
    _tried: float = -1e9
    """When the store was last asked for new commits, by the clock of this process."""
    is_followed: bool = False
    """True if a thread asks the store again and again, so that no reader has to wait for it."""
    _paths: list[str] | None = None
    _room: Room = field(init=False)
    _locks: list[threading.Lock] = field(default_factory=lambda: [threading.Lock() for _ in range(_LOCKS)])

    def __post_init__(self) -> None:
        self._room = Room(self.root.parent.parent)

    @property
    def note(self) -> str:
        """A sentence on what the copy lacks; empty while the store answers."""
        state = load(self.root.parent)
        lacks = [f"{path} was not read: {why}" for path, why in sorted(state.refused.items())]
        if state.failed is not None and state.read is not None:
            lacks.insert(0, f"the state of {_duration(time.time() - state.read)} ago is shown, because {state.why}")
        return "; ".join(lacks)

    @property
    def is_known(self) -> bool:
        """True if the store was read to the end at least once."""
        return load(self.root.parent).read is not None

    def sync(self) -> None:
        """Copies new lines of the logs. Unreachable; SourceError if there is no run. It waits for another process that does."""
        folder, address = self.root.parent, self.store.address
        self._tried, self._paths = time.monotonic(), None
        folder.mkdir(0o700, parents=True, exist_ok=True)
        with _alone(folder, self.store.seconds):
            state = load(folder)
            state.shown, state.url = address.shown, "" if address.secrets else address.url
            try:
                LogReading(self.root, self.store, state).read()
            except SourceError as error:
                state = load(folder)
                state.failed, state.why = time.time(), str(error)
                raise
            finally:
                save(folder, state)

    def follow(self, every: float = 2.0) -> None:
        """As `sync`, if the store was not asked within so many seconds. A store that fails is noted, and nothing is raised."""
        if every and self.is_followed:
            return
        if time.monotonic() - self._tried >= every:
            with suppress(SourceError):
                self.sync()

    def bring(self, path: str, size: int | None, *, again: bool = False) -> None:
        """Makes sure that the copy has a Parquet file of the run. size: its bytes, if they are known.

        again: fetch it although it is there. FileNotFoundError where the store has none; Unreachable; SourceError for a name
        that no file of a run has.
        """
        if not _is_file(path):
            raise SourceError(f"{path[:200]!r} is no name of a file of a run")
        local = self.root.joinpath(*parts(path))
        with self._locks[hash(path) % _LOCKS]:
            with suppress(FileNotFoundError):
                here = os.stat(local)
                if not again and size in (None, here.st_size):
                    note_use(local, here)
                    return
            if size is not None and size > MOST_FILE:
                raise SourceError(f"its commit states {size} bytes; at most {MOST_FILE} are fetched of one file")
            self._room.demand(size or _GUESS)
            local.parent.mkdir(0o700, parents=True, exist_ok=True)
            with whole_file(local) as file:
                self.store.fetch(path, file, MOST_FILE if size is None else size + _MORE)

    def bring_all(self, files: Iterable[tuple[str, int | None]]) -> None:
        """`bring` for several files at a time. A file that the store lacks, or that may not be fetched, is left to its reader."""

        def one(file: tuple[str, int | None]) -> None:
            try:
                self.bring(*file)
            except Unreachable:
                raise
            except (FileNotFoundError, SourceError):
                return

        side_by_side(one, [(path, size) for path, size in files if not (self.root / path).exists()])

    def end_of(self, path: str, size: int, most: int) -> bytes:
        """The end of a Parquet file of this size, with all of its footer. Unreachable; SourceError for no such file."""
        if not _is_file(path) or size < _TRAILER:
            raise SourceError(f"{path[:200]!r} of {size} bytes is no file of a run")
        end = self.store.read(path, max(0, size - _END), size)
        footer = int.from_bytes(end[-_TRAILER:-4], "little") + _TRAILER
        if len(end) != min(size, _END) or footer > min(size, most):
            raise SourceError(f"{path} ends in no footer")
        return end if footer <= len(end) else self.store.read(path, size - footer, size)

    def paths(self) -> list[str]:
        """Paths of all Parquet files on the store. It lists them all, once per look at the logs."""
        if self._paths is None:
            self._paths = [path for path in self.store.files() if _is_file(path)]
        return self._paths


def _is_file(path: str) -> bool:
    match = _FILE.fullmatch(path)
    return match is not None and NAME.fullmatch(match[1]) is not None and ".." not in path.split("/")


@contextmanager
def _alone(folder: Path, seconds: float) -> Iterator[None]:
    """Keeps other processes and threads from reading the store into this copy. Unreachable if one does so for too long."""
    until = time.monotonic() + seconds
    with open(folder / "lock", "wb") as lock:
        while not _is_locked(lock):
            if time.monotonic() > until:
                raise Unreachable(f"another process has been reading into {folder} for {seconds:g} s")
            time.sleep(0.05)
        yield


def _is_locked(file: IO[bytes]) -> bool:
    """Takes the lock of a file. False if another process or thread holds it."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _duration(seconds: float) -> str:
    for unit, name in ((86_400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}{'s' * (round(seconds / unit) != 1)}"
    return f"{max(0.0, seconds):.0f} seconds"


class NoRoom(Unreachable):
    """The disk of the cache is full."""


def budget() -> int:
    """Bytes that all copies may take."""
    stated = os.environ.get(BUDGET_VARIABLE, "")
    return int(stated) if stated.isascii() and stated.isdigit() else MOST_BYTES


def demand_disk(mirrors: Path, nbytes: int) -> None:
    """NoRoom unless the disk has so many bytes more than the reserve."""
    free = shutil.disk_usage(mirrors).free
    if free < nbytes + RESERVE:
        raise NoRoom(
            f"the disk of {mirrors} has {size_on_disk(free)} left, and {size_on_disk(nbytes)} are to be fetched; wanted"
            f" {size_on_disk(RESERVE)} more than that: delete {mirrors}, or set XDG_CACHE_HOME to a larger disk"
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
        path
        for part in (TOKENS, STATISTICS, SCALARS, OVERALL, READINGS, TOPK)
        for path in mirrors.glob(f"*/*/{part}/**/*")
    )
    for path in paths:
        with suppress(OSError):
            if path.is_file():
                status = path.stat()
                yield status.st_atime, status.st_size, path
