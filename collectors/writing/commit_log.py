"""The commit log of one writer. A line that could not be written waits and is written before the next."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ratioscope.layout import chained_line
from ratioscope.redaction import without_secrets

from .durable_file import append

_WAITING = 10_000  # lines; some megabytes
_WORDS = ("event", "note", "reason")
"""What of an entry may be an exception's words, or the user's."""


class CommitLog:
    """Appends lines, each bound to the one before it; each call is durable when it returns. Secrets in what a note or a reason
    says are taken out."""

    def __init__(self, root: Path, file: PurePath) -> None:
        self._root, self.file = root, file
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=_WAITING)
        self._lines, self._chain, self._end = 0, "", 0

    def say(self, *entries: Mapping[str, Any]) -> None:
        """Appends the entries after those that wait. On OSError they wait too, in order."""
        given_up = max(0, len(self._waiting) + len(entries) - _WAITING)
        self._lines += given_up  # so that a reader misses them
        self._waiting.extend(map(_without_secrets, entries))
        if self._waiting:
            lines, chain = [], self._chain
            for number, entry in enumerate(self._waiting, self._lines):
                line, chain = chained_line(entry, number, chain)
                lines.append(line)
            self._end = append(self._root, self.file, b"".join(lines), self._end)
            self._lines, self._chain = self._lines + len(lines), chain
            self._waiting.clear()

    def begin_anew(self) -> None:
        """The file is gone: what is said from here on, and what waits, begins another one."""
        self._lines, self._chain, self._end = 0, "", 0

    @property
    def waiting(self) -> int:
        """Lines that are not on disk."""
        return len(self._waiting)


def _without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: without_secrets(value) if key in _WORDS and isinstance(value, str) else value
        for key, value in entry.items()
    }
