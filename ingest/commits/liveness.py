"""The liveness of a run's writers, from the size, first line and last line of their commit logs. Cheap enough for every second.

A writer is closed (its log ends with a close line), alive or gone (its process runs, or does not run, on this machine), or
unknown (its process belongs to another machine). app/presentation/run_state.py words these states: live, ended, silent, dead.
Writers that may still write into a run. `repair`, `compact` and `prune` refuse to change a run while there are any.
"""

import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeGuard

from ratioscope.errors import SourceError
from ratioscope.inside import folder, open_regular
from ratioscope.layout import CLOSE, COMMIT, COMMITS, OPEN, decode_line
from ratioscope.process import Here, Process

from .entries import names
from .writer_history import NEWEST, WriterHistory, usual_pause

WriterState = Literal["closed", "alive", "gone", "unknown"]
Sizes = Mapping[str, tuple[int, int]]
"""Path of a commit log, relative to the run -> (its size in bytes, when it changed in ns)."""
_HEAD, _TAIL = 1 << 14, 1 << 16
"""Bytes that are read of the first line, and of the last lines."""
_MOST_READ = 1 << 23
_MOST_LOGS = 20_000

PAUSES = 3.0
"""A writer counts as silent, or as ended, no sooner than after so many of its usual pauses between two steps. A convention: the
steps of large runs take longer than any fixed number of minutes."""
PRESUMED_ENDED_SECONDS = 3600.0
"""Seconds without a commit after which a writer whose process cannot be seen counts as ended: its pending sequences count as
lost, and `repair`, `compact` and `prune` change the run. Convention: a step rarely takes an hour."""
SILENT_SECONDS = 120.0
"""Seconds without a commit after which every face calls such a writer silent. Convention: it is a mere warning, which a longer
step takes back."""


@dataclass(frozen=True)
class WriterStatus:
    """Contents of the first and last lines of a writer's log."""

    writer: str
    attempt: int
    closed: bool
    """True if the last line closes the log."""
    last_heard: float
    """When the last line was written, in seconds since 1970."""
    host: str | None = None
    """Host, process id, start time and process namespace identify the writer's process, see ratioscope/process.py."""
    pid: int | None = None
    started: str | None = None
    """Start time of the process, as text; None if the log has none."""
    namespace: str | None = None
    """The process namespace; None if the log has none."""
    step: int | None = None
    """The last step committed, if one of the last lines is a commit."""
    pause: float = 0.0
    """The usual seconds between its last steps; 0 where the last lines have not two."""
    takes_over: frozenset[str] = frozenset()
    """Earlier writers that had ended when this writer began."""

    def state(self, here: Here) -> WriterState:
        """The word closed if the writer has closed, else the state of its process, as far as it can be seen from `here`."""
        if self.closed:
            return "closed"
        return Process(self.host, self.pid, self.started, self.namespace).life(here)


def sizes(root: Path) -> Sizes:
    """The commit logs of a run with their sizes, which grow with every commit. SourceError where the run's folder is gone."""
    try:
        with folder(root, COMMITS) as at, os.scandir(at) as entries:
            first = [entry for entry, _ in zip(entries, range(_MOST_LOGS), strict=False)]
            logs = [entry for entry in first if entry.name.endswith(".jsonl") and not entry.name.startswith(".")]
            seen = {f"{COMMITS}/{entry.name}": entry.stat(follow_symlinks=False) for entry in logs}
    except OSError as error:
        if not root.is_dir():
            raise SourceError(f"{root} is gone: the folder was deleted or moved") from error
        return {}
    return {
        log: (file_status.st_size, file_status.st_mtime_ns)
        for log, file_status in seen.items()
        if stat.S_ISREG(file_status.st_mode)
    }


def writer_statuses(
    root: Path, logs: Sizes, earlier: Mapping[str, tuple[tuple[int, int], WriterStatus | None]]
) -> dict[str, Any]:
    """log -> (its size, its writer's status). Only logs that changed since `earlier` are read. None: not the log of a writer."""
    return {
        log: earlier[log] if log in earlier and earlier[log][0] == size else (size, _word(root, log, size))
        for log, size in logs.items()
    }


def current_writers(statuses: Iterable[WriterStatus | None]) -> list[WriterStatus]:
    """The writers of the newest attempt that no later writer replaces. Writers of older attempts count as ended."""
    writers = [word for word in statuses if word is not None]
    newest = max((word.attempt for word in writers), default=0)
    replaced = {writer for word in writers for writer in word.takes_over}
    return [word for word in writers if word.attempt == newest and word.writer not in replaced]


def steps_since(root: Path, before: Sizes, now: Sizes) -> set[int]:
    """Steps whose token rows were committed between these two sizes. At most some megabytes of lines are read."""
    steps: set[int] = set()
    left = _MOST_READ
    for log, (size, _) in now.items():
        old = before.get(log, (0, 0))[0]
        if size > old and left > 0:
            lines = _read(root, log, old, min(left, size - old)).split(b"\n")
            left -= size - old
            entries = (decode_line(line) for line in lines if b'"commit"' in line)
            steps.update(e["step"] for e in entries if e and e.get("kind") == COMMIT and isinstance(e.get("step"), int))
    return steps


def _word(root: Path, log: str, size: tuple[int, int]) -> WriterStatus | None:
    first = decode_line(_read(root, log, 0, _HEAD).split(b"\n")[0])
    if first is None or first.get("kind") != OPEN:
        return None
    whole, _, _ = _read(root, log, max(0, size[0] - _TAIL), _TAIL).rpartition(b"\n")
    lines = whole.split(b"\n")
    last = decode_line(lines[-1]) or {}
    last_heard = last.get("time")
    return WriterStatus(
        writer=str(first.get("writer", log)),
        attempt=_whole(first.get("attempt")) or 0,
        closed=last.get("kind") == CLOSE,
        last_heard=float(last_heard) if isinstance(last_heard, (int, float)) else size[1] / 1e9,
        host=_text(first.get("host")),
        pid=_whole(first.get("pid")),
        started=_text(first.get("started")),
        namespace=_text(first.get("namespace")),
        step=_last_step(lines),
        pause=_pause(lines),
        takes_over=names(first.get("takes_over")) | names(first.get("continues")),
    )


def _last_step(lines: Sequence[bytes]) -> int | None:
    """The step of the last commit (of token rows or of statistics) among these lines."""
    for line in reversed(lines):
        entry = decode_line(line) if b'"commit"' in line else None
        if entry is not None and entry.get("kind") == COMMIT:
            steps = entry.get("steps")
            newest = max(filter(_is_whole, steps), default=None) if isinstance(steps, list) else entry.get("step")
            if _is_whole(newest):
                return newest
    return None


def patience(least: float, *pauses: float) -> float:
    """The seconds without a commit that writers with these usual pauses are given, at least so many."""
    return max(least, *(PAUSES * pause for pause in pauses))


def _pause(lines: Sequence[bytes]) -> float:
    """The usual seconds between the last steps of which these lines commit token rows."""
    times: dict[int, float] = {}
    for line in reversed(lines):
        entry = decode_line(line) if b'"commit"' in line else None
        if (
            entry is not None
            and _is_whole(step := entry.get("step"))
            and isinstance(at := entry.get("time"), (int, float))
        ):
            times[step] = float(at)
        if len(times) == NEWEST:
            break
    return usual_pause(times.values())


def _is_whole(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _read(root: Path, log: str, offset: int, length: int) -> bytes:
    try:
        with open_regular(root, log) as file:
            file.seek(offset)
            return file.read(length)
    except (OSError, SourceError):  # the log was removed or replaced meanwhile: the next call notices
        return b""


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def at_work(histories: Iterable[WriterHistory], here: Here, now: float) -> list[str]:
    """One sentence for each writer that has not closed and may still be running."""
    every = list(histories)
    ended = {writer for history in every for writer in history.continues}
    present = [history for history in every if history.log.writer not in ended]
    return [reason for history in present if (reason := _alive(history, here, now)) is not None]


def _alive(history: WriterHistory, here: Here, now: float) -> str | None:
    process = history.process
    if history.closed is not None or process.pid is None:
        return None
    life = process.life(here)
    if life == "alive":
        return f"{history.log.writer} has not closed, and its process {process.pid} is alive"
    silent = now - (history.last_commit or history.opened or 0.0)
    if life == "gone" or silent >= patience(PRESUMED_ENDED_SECONDS, history.pause):
        return None
    where = f"in another container of {history.host}" if history.host == here.host else f"on {history.host}"
    return f"{history.log.writer} {where} has not closed, and last wrote {max(0.0, silent) / 60:.0f} minutes ago"
