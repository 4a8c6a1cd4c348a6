"""Sending a run to another tool: once, or again and again until the run has ended."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import SourceError

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

FollowOption = Annotated[
    bool, typer.Option("--follow", help="Send new steps until the run ends. Ctrl+C ends it earlier.")
]
EveryOption = Annotated[float, typer.Option(min=0.2, metavar="SECONDS", help="Seconds between two looks of --follow.")]


def sent_until_ended(
    run: "Run", send: Callable[[bool], int], every: float | None, sleep: Callable[[float], object] = time.sleep
) -> int:
    """Sends what is on record, then every so many seconds what is new; returns the number of steps.

    send: takes whether the run has ended. every: None sends once.
    """
    ended = has_ended(run)
    rows = send(ended)
    while every is not None and not ended:
        sleep(every)
        ended = has_ended(run)  # before the rows: a run that ended has no later rows
        if run.is_replaced:
            raise SourceError(f"another run was recorded in {run.path}; what was sent of the first is kept, sync again")
        run.refresh()
        rows += send(ended)
    return rows


def has_ended(run: "Run") -> bool:
    """True if the run had writers and all of them closed their logs."""
    from ratioscope.ingest.commits.liveness import current_writers, sizes, writer_statuses
    from ratioscope.process import here

    writers = current_writers(status for _, status in writer_statuses(Path(run.path), sizes(run.path), {}).values())
    return bool(writers) and all(status.state(here()) == "closed" for status in writers)
