"""`ratioscope sync RUN --to LOGGER:PLACE`: the metrics of a run in TensorBoard, MLflow, trackio, SwanLab or Prometheus.

Every verb that sends a run does so once, or again and again until the run has ended.
"""

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ratioscope.errors import SourceError

from ..terminal import say
from .arguments import RunFolder, opened

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


ToOption = Annotated[
    str,
    typer.Option(
        "--to",
        metavar="LOGGER:PLACE",
        help="tensorboard:DIR, mlflow:URI, trackio:PROJECT, swanlab:PROJECT or prometheus:FILE. W&B: ratioscope wandb sync.",
    ),
]


def sync(run: RunFolder, to: ToOption, follow: FollowOption = False, every: EveryOption = 5.0) -> None:
    """Send the metrics of a run, and the severity of each step, to a logger.

    TensorBoard and Prometheus need no package. A second sync sends what is new. The name of the run is sent, or a digest of it
    if it has a blank or more than 80 characters, and no other text of the run.
    """
    from ...export.sinks.logger_table import LoggerSync, logger_of
    from ...export.wandb.sync_record import Destination, sync_record, wandb_id
    from ...presentation.privacy import scrubbed_text
    from ...presentation.without_texts import outgoing

    logger, place = logger_of(to)
    opened_run = opened(run)
    run_id = wandb_id(opened_run)
    target = Destination(f"{logger.name}:{_lasting(logger.name, place)}", None, None, True, False)
    with sync_record(target, run_id) as (record, file):
        leaving = outgoing(opened_run, text=False)
        work = LoggerSync(leaving, logger, record, file)
        ended = has_ended(opened_run)
        if not work.rows(ended) and (ended or not follow):
            say(f"nothing new since the last sync to {scrubbed_text(to)}")
            return
        open_logger = logger.opened(place, run_id, scrubbed_text(leaving.name))
        try:
            rows = sent_until_ended(opened_run, partial(work.send, open_logger), every if follow else None)
        finally:
            open_logger.close()
    say(f"sent {rows} step{'' if rows == 1 else 's'} to {scrubbed_text(to)}")


def _lasting(logger: str, place: str) -> str:
    """The place by a name that does not depend on the folder that the verb is called in."""
    return str(Path(place).absolute()) if logger in ("tensorboard", "prometheus") else place
