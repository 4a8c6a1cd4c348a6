"""The parts of a run that the store failed to read. That says nothing about their content, so they are tried again.

A network disk that is gone for a minute returns errors such as EIO and ESTALE, and then the very same files.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ..files.parquet_files import ParquetFiles

RESTS = 9
"""A look that takes long is followed by a rest of so many times its length: a reader that follows a run on a far or failing
store spends a tenth of its time on such looks."""


@dataclass
class StoreFailures:
    """Files, folders and logs of the run that the store failed to read when they were last needed."""

    files: ParquetFiles
    folders: set[str] = field(default_factory=set)
    """Those that it failed to list when the logs were last compared with the folders."""
    logs: set[str] = field(default_factory=set)
    """Those that it failed to read at the last refresh, or the folder of all. Every refresh tries them again."""
    _waiting: list[str] = field(default_factory=list)
    """Parquet files. The first is tried next."""
    _again: float = 0.0
    """Time from which on it is tried."""

    def __contains__(self, path: str) -> bool:
        return path in self._waiting or path in self.folders or path in self.logs

    def is_missing(self, path: str) -> bool:
        """True if a file that no listing named is not there. A network disk may list a folder as it was some seconds ago."""
        is_unlisted = any(path.startswith(f"{folder}/") for folder in self.folders)
        return not is_unlisted and self.files.is_missing(path)

    def note(self, path: str) -> None:
        """Notes the file that was set aside, if that was because of the store."""
        if path in self.files.unread and path not in self._waiting and not self.files.is_missing(path):
            self._waiting.append(path)

    def forget(self, path: str) -> None:
        """Forgets the file, because it will be read again."""
        if path in self._waiting:
            self._waiting.remove(path)

    def readable_again(self) -> Iterator[str]:
        """All files, if the store now reads the one whose turn it is."""
        if not self._waiting or time.monotonic() < self._again:
            return
        began = time.monotonic()
        if self.files.can_be_read(self._waiting[0]):
            yield from tuple(self._waiting)
        else:
            self._waiting.append(self._waiting.pop(0))
            ended = time.monotonic()
            self._again = ended + RESTS * (ended - began)
