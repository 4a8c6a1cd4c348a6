"""The copy of one commit log on a store, which follows the log: bytes that were appended are read, and nothing else.

An object on a store is replaced whole by each upload. The end of the copy is read again and compared. Its last line holds the
checksum of all lines before it, so a log that was replaced by another one is noticed, and read from its start.
"""

import filecmp
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .store import Store, Stored

MOST_LOG = 1 << 30
"""Bytes of one log at most. The log of 100,000 steps has 60 MB."""
_OVERLAP = 1 << 12
_CHUNK = 1 << 23


@dataclass
class LogCopy:
    """The copy of one log."""

    store: Store
    path: str
    """Path of the log, relative to the run."""
    local: Path
    """The copy."""
    stored: Stored
    """The log as the store lists it now."""

    @property
    def is_current(self) -> bool:
        """True if the copy has the listed size."""
        return self.local.stat().st_size == self.stored.size

    def advance(self) -> None:
        """Copies what is new. FileNotFoundError; Unreachable. Whatever ends it, the copy is a beginning of the log."""
        have = self.local.stat().st_size if self.local.exists() else 0
        if not 0 < have < self.stored.size or not self._is_continued(have):
            self._copy_whole()

    def _is_continued(self, have: int) -> bool:
        """Appends what the log has beyond the copy. False, and nothing is changed, if it is another log."""
        overlap = min(have, _OVERLAP)
        with open(self.local, "r+b") as copy:
            copy.seek(have - overlap)
            end = copy.read(overlap)
            data = self.store.read(self.path, have - overlap, min(self.stored.size, have + _CHUNK))
            if data[:overlap] != end:
                return False
            data = data[overlap:]
            while data:
                copy.write(data)
                have += len(data)
                more = min(self.stored.size, have + _CHUNK)
                data = self.store.read(self.path, have, more) if more > have else b""
        return True

    def _copy_whole(self) -> None:
        """Puts the whole log in place of the copy, unless they are equal: readers take another file for another log."""
        fresh = self.local.with_name(f".{self.local.name}.part")
        try:
            with open(fresh, "wb") as file:
                file.writelines(self._chunks())
            if not self.local.exists() or not filecmp.cmp(fresh, self.local, shallow=False):
                os.replace(fresh, self.local)
        finally:
            fresh.unlink(missing_ok=True)

    def _chunks(self) -> Iterator[bytes]:
        """The log in pieces, up to its end or to the first empty answer."""
        at = 0
        while at < self.stored.size and (data := self.store.read(self.path, at, min(self.stored.size, at + _CHUNK))):
            yield data
            at += len(data)
