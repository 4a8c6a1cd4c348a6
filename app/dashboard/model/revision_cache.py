"""A cache of frames and figures of runs, shared by all sessions.

It is bounded in bytes and keeps the two newest revisions of each run, and every revision that a page displays.

An open page shows one revision while the next is computed, and for as long as its reader pauses it. Older revisions are not
requested again.
"""

import threading
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from weakref import WeakSet

import plotly.graph_objects as go
import polars as pl

from ...pages.running_scripts import idle

MOST_BYTES = 512 << 20
"""The metrics of a long run take 16 MB, its distributions 50 MB at each level."""
UNKNOWN = 1 << 16
"""Assumed bytes of a value of unknown size."""
FIGURE = 1 << 20
"""Assumed bytes of a figure with its JSON: 0.3 MB for lines, 1.8 MB for a heat map of 600 columns."""

CacheKey = tuple[str, int, str, tuple[Hashable, ...]]
"""Path of the run, revision, name of the function, its arguments."""


@dataclass(eq=False)
class HeldRevision:
    """A revision that a page displays. The cache keeps its values as long as this object lives."""

    path: str
    revision: int


@dataclass
class _Slot:
    """One value. The first thread that asks for it computes it; the others wait."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    made: bool = False
    """True once the value is there."""
    value: object = None
    bytes: int = 0
    """Memory that the value takes, about."""


@dataclass
class RevisionCache:
    """Values by key. The least recently used ones are dropped first."""

    most_bytes: int = MOST_BYTES
    """Bound of the memory of all values."""
    late: set[tuple[str, int]] = field(default_factory=set)
    """(path, revision) with a value that was first requested after the run had grown, and so shows a newer state."""
    _shown: WeakSet[HeldRevision] = field(default_factory=WeakSet)
    """Revisions that a page shows: their values are kept."""
    _slots: dict[CacheKey, _Slot] = field(default_factory=dict)
    """The values, the one that was used last at the end."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, key: CacheKey, make: Callable[[], object]) -> object:
        """The value of this key; computed if it is missing. An exception leaves no entry."""
        with self._lock:
            slot = self._slots.pop(key) if key in self._slots else _Slot()
            self._slots[key] = slot  # the latest used comes last
        if not slot.lock.acquire(blocking=False):
            with idle():
                slot.lock.acquire()
        try:
            if not slot.made:
                slot.value = self._made(key, make)
                slot.bytes = size_of(slot.value)
                slot.made = True
                self._tidy(key)
        finally:
            slot.lock.release()
        return slot.value

    def _made(self, key: CacheKey, make: Callable[[], object]) -> object:
        try:
            return make()
        except BaseException:
            with self._lock:
                self._slots.pop(key, None)
            raise

    def show(self, path: str, revision: int) -> HeldRevision:
        """Keeps the values of this revision for as long as the caller keeps the returned object."""
        shown = HeldRevision(path, revision)
        with self._lock:
            self._shown.add(shown)
        return shown

    def note_late(self, path: str, revision: int) -> None:
        with self._lock:
            self.late.add((path, revision))

    @property
    def bytes(self) -> int:
        """Bytes of all values."""
        with self._lock:
            return sum(slot.bytes for slot in self._slots.values())

    def _tidy(self, fresh: CacheKey) -> None:
        """Drops old revisions of the run of the fresh value, then the least recently used values."""
        path, revision = fresh[:2]
        with self._lock:
            shown = {one.revision for one in self._shown if one.path == path}
            for key in [key for key in self._slots if key[0] == path and key[1] < revision - 1 and key[1] not in shown]:
                del self._slots[key]
            self.late = {one for one in self.late if one[0] != path or one[1] >= revision - 1 or one[1] in shown}
            total = sum(slot.bytes for slot in self._slots.values())
            for key, slot in list(self._slots.items()):
                if total <= self.most_bytes:
                    return
                if key != fresh and slot.made:
                    total -= slot.bytes
                    del self._slots[key]


def size_of(value: object) -> int:
    """Bytes of a frame, a figure or a text, or of all of them in a tuple, list or mapping; UNKNOWN for anything else."""
    if isinstance(value, pl.DataFrame):
        return int(value.estimated_size()) + UNKNOWN
    if isinstance(value, go.Figure):
        return FIGURE
    if isinstance(value, str):
        return len(value) + UNKNOWN
    if isinstance(value, dict):
        return UNKNOWN + sum(map(size_of, value.values()))
    if isinstance(value, (tuple, list)) and len(value) < 1000:
        return UNKNOWN + sum(map(size_of, value))
    inside = getattr(value, "__dict__", None)
    return UNKNOWN + (sum(size_of(part) for part in inside.values() if isinstance(part, pl.DataFrame)) if inside else 0)
