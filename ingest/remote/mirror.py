"""A copy of a run on a store, in the user's cache: a run folder that readers open like any other.

Commit logs are followed: only bytes that were appended are read again. Parquet files are fetched when a reader needs them, once,
and are checked by readers against the digests in the logs. The store is as untrusted as a stranger's folder: a name on it
decides nothing but the name of a file in the copy, and every size is bounded before a file is fetched.
"""

import fcntl
import os
import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from ratioscope.errors import SourceError
from ratioscope.inside import parts
from ratioscope.layout import OVERALL, READINGS, SCALARS, STATISTICS, TOKENS
from ratioscope.whole_file import whole_file

from .log_reading import NAME, LogReading
from .mirror_state import load, save
from .room import Room, note_use
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
    rf"(?:{TOKENS}/step=-?\d{{1,19}}|{STATISTICS}|{SCALARS}|{OVERALL}|{READINGS}/[^/]+/step=-?\d{{1,19}})/([^/]+\.parquet)"
)


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
