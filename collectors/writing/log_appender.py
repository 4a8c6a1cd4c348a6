"""The commit log of one writer. A line that cannot be written waits in memory, and is written before the next one."""

from collections import deque
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

from ratioscope.layout import COMMIT, DROPPED, chained_line
from ratioscope.redaction import without_secrets

from ..process.counts import Tally
from .durable_file import append

_WAITING = 10_000  # lines; some megabytes
_WORDS = ("event", "note", "reason")
"""Members of an entry that may hold the words of an exception or of the user."""


class LogAppender:
    """Appends lines, each chained to the one before it. They are durable when the call returns. Secrets are removed from them."""

    def __init__(self, root: Path, file: PurePath) -> None:
        self._root, self.file = root, file
        self._waiting: deque[Mapping[str, Any]] = deque(maxlen=_WAITING)
        self._lines, self._chain, self._end = 0, "", 0
        self.told = Tally()
        """Sequences whose fate is in the lines of this file, on disk or waiting."""

    def say(self, *entries: Mapping[str, Any]) -> None:
        """Appends the entries, after those that wait. If that raises OSError they wait too, in order."""
        given_up = max(0, len(self._waiting) + len(entries) - _WAITING)
        self._lines += given_up  # the numbers of these lines are left out, so that a reader sees that they are missing
        self._waiting.extend(map(_without_secrets, entries))
        self.told = sum(map(_fates, entries), self.told)
        if self._waiting:
            lines, chain = [], self._chain
            for number, entry in enumerate(self._waiting, self._lines):
                line, chain = chained_line(entry, number, chain)
                lines.append(line)
            self._end = append(self._root, self.file, b"".join(lines), self._end)
            self._lines, self._chain = self._lines + len(lines), chain
            self._waiting.clear()

    def begin_anew(self) -> None:
        """Begins another file, because the old one was deleted. The next call writes what waits to it, and its own lines."""
        self._lines, self._chain, self._end = 0, "", 0
        self.told = sum(map(_fates, self._waiting), Tally())

    @property
    def waiting(self) -> int:
        """Lines that are not on disk."""
        return len(self._waiting)


def _fates(entry: Mapping[str, Any]) -> Tally:
    """The sequences whose fate is in this line."""
    if entry["kind"] == DROPPED:
        return Tally(entry["sequences"], dropped=entry["sequences"])
    if entry["kind"] != COMMIT or "rows" not in entry:
        return Tally()
    rows, left_out = entry["rows"], entry.get("left_out", 0)
    return Tally(rows + left_out, written=rows, left_out=left_out)


def _without_secrets(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: without_secrets(value) if key in _WORDS and isinstance(value, str) else value
        for key, value in entry.items()
    }
