"""The parts of a run that are not read, each with the reason, until they change or the store answers again.

The parts of a run that the store failed to read. That says nothing about their content, so they are tried again.

A network disk that is gone for a minute returns errors such as EIO and ESTALE, and then the very same files.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.errors import Unread

from ..files.parquet_files import FileSignature, ParquetFiles

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


@dataclass
class FilesSetAside:
    """Parquet files that are not read, and commit logs or the folder of all."""

    files: ParquetFiles
    digest: Callable[[str], str | None]
    """The digest in the commit of the file at this path."""
    reasons: dict[str, str] = field(default_factory=dict)
    """path -> why it is not read."""
    failures: StoreFailures = field(init=False)
    """Those of them that the store failed to read."""
    _states: dict[str, tuple[FileSignature | None, str | None]] = field(default_factory=dict)
    """path of a Parquet file -> its state when it was set aside, see `_state`."""

    def __post_init__(self) -> None:
        self.failures = StoreFailures(self.files)

    def add(self, path: str, reason: str) -> bool:
        """Sets a Parquet file aside until the file or its commit changes. True if that is new, or the reason is."""
        is_new = self.reasons.get(path) != reason
        self.reasons[path] = reason
        self._states[path] = self._state(path)
        self.failures.note(path)
        return is_new

    def say(self, log: str, reason: str | None, *, by_store: bool = False) -> bool:
        """Notes why a log, or the folder of all, is not read, or that it is (None). True if that is new."""
        before = self.reasons.pop(log, None)
        self.failures.logs.discard(log)
        if reason is not None:
            self.reasons[log] = reason
            self.failures.logs |= {log} if by_store else set()
        return before != reason

    def _take_back(self, path: str) -> None:
        """The file is read again when it is needed."""
        self._states.pop(path, None)
        self.reasons.pop(path, None)
        self.failures.forget(path)

    def take_back_changed(self) -> bool:
        """Takes back files that have changed, or whose commits have, or that the store reads again. True if there were any."""
        changed = [path for path, state in self._states.items() if self._state(path) != state]
        changed += self.failures.readable_again()
        for path in changed:
            self._take_back(path)
        return bool(changed)

    def take_back_listed(self, unlisted: set[str]) -> None:
        """unlisted: folders that the store fails to list now. Takes back those that it failed to list before and lists now."""
        for path in self.failures.folders - unlisted:
            self._take_back(path)
        self.failures.folders = unlisted

    def demand_read(self, root: Path) -> None:
        """Unread if the store failed to read a part of the run: a verb that changes a run must not act on the rest alone."""
        for path, reason in self.reasons.items():
            if path in self.failures:
                advice = "try again once the store answers; if it never does, copy the file again, or move it away"
                raise Unread(f"{root / path}: {reason}. Nothing more was changed: {advice}")

    def _state(self, path: str) -> tuple[FileSignature | None, str | None]:
        """(signature of the file on disk, digest in its commit)."""
        return self.files.signature(path), self.digest(path)
