"""Who may still write into a run. Verbs that change a run wait for them: what they change must not move under them."""

import os
from collections.abc import Iterable

from .writer_history import WriterHistory

SILENT_SECONDS = 3600.0
"""A writer on another host that has said nothing for so long counts as ended. A convention; a step rarely takes an hour."""


def at_work(histories: Iterable[WriterHistory], host: str, now: float) -> list[str]:
    """A sentence for every writer that has not closed and may be alive. host: this one's, as commit logs name it."""
    return [reason for history in histories if (reason := _alive(history, host, now)) is not None]


def _alive(history: WriterHistory, host: str, now: float) -> str | None:
    if history.closed is not None or history.pid is None:
        return None
    if history.host == host:
        return (
            f"{history.log.writer} has not closed, and its process {history.pid} is alive"
            if _runs(history.pid)
            else None
        )
    silent = now - (history.last_commit or history.opened or 0.0)
    if silent >= SILENT_SECONDS:
        return None
    return (
        f"{history.log.writer} on {history.host} has not closed, and last wrote {max(0.0, silent) / 60:.0f} minutes ago"
    )


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError, ValueError):
        return False
    except PermissionError:
        return True
    return True
