"""The parts of a run that are not read, each with the reason, until they change or the store answers again."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.errors import Unread

from ..files.parquet_files import FileSignature, ParquetFiles
from .store_failures import StoreFailures


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
