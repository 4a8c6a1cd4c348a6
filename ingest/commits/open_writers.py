"""Writers that may still write into a run. `repair`, `compact` and `prune` refuse to change a run while there are any."""

from collections.abc import Iterable

from ratioscope.process import Here

from .writer_history import WriterHistory

PRESUMED_ENDED_SECONDS = 3600.0
"""Seconds without a commit after which a writer whose process cannot be seen counts as ended: its pending sequences count as
lost, and `repair`, `compact` and `prune` change the run. Convention: a step rarely takes an hour."""
SILENT_SECONDS = 120.0
"""Seconds without a commit after which every face calls such a writer silent. Convention: it is a mere warning, which a longer
step takes back."""


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
    if life == "gone" or silent >= PRESUMED_ENDED_SECONDS:
        return None
    where = f"in another container of {history.host}" if history.host == here.host else f"on {history.host}"
    return f"{history.log.writer} {where} has not closed, and last wrote {max(0.0, silent) / 60:.0f} minutes ago"
