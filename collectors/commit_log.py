"""The commit log of one writer. A line that could not be written waits and is written before the next."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ratioscope.layout import encode_line
from ratioscope.redaction import without_secrets

from .durable_file import append

_WAITING = 10_000  # lines; some megabytes
_WORDS = ("event", "note", "reason")
"""What of an entry may be an exception's words, or the user's."""


class CommitLog:
    """Appends lines; each call is durable when it returns. Secrets in what a note or a reason says are taken out."""

    def __init__(self, root: Path, file: PurePath) -> None:
        self._root, self._file = root, file
        self._waiting: deque[bytes] = deque(maxlen=_WAITING)

    def say(self, *entries: Mapping[str, Any]) -> None:
        """Appends the entries after those that wait. On OSError they wait too, in order."""
        self._waiting.extend(encode_line(_without_secrets(entry)) for entry in entries)
        if self._waiting:
            append(self._root, self._file, b"".join(self._waiting))
            self._waiting.clear()

    @property
    def waiting(self) -> int:
        """Lines that are not on disk."""
        return len(self._waiting)


def _without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: without_secrets(value) if key in _WORDS and isinstance(value, str) else value
        for key, value in entry.items()
    }
