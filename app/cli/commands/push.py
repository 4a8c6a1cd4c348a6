"""`ratioscope push RUN URL`: uploads a run to a store, where every state that it leaves is a run."""

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from ...presentation.digits import size_on_disk
from ..interruption import ended_in_order
from ..terminal import note, print_json, say, transfer
from .arguments import AsJson, OwnRun
from .sync import has_ended

if TYPE_CHECKING:
    from ratioscope.ingest.maintenance.push import Pushed

UrlArgument = Annotated[
    str, typer.Argument(metavar="URL", help="The destination: s3://bucket/runs/a, gs://…, hf://…, file:///….")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Upload what is new until the run ends. Ctrl+C ends it earlier.")
]
EveryOption = Annotated[
    float, typer.Option(min=1.0, metavar="SECONDS", help="Seconds between two uploads of --follow.")
]


def push(
    run: OwnRun, url: UrlArgument, follow: FollowOption = False, every: EveryOption = 30.0, as_json: AsJson = False
) -> None:
    """Upload a run to a store: files first, commit logs last. A push that was interrupted goes on where it ended.

    Credentials come from the environment or the store's own settings. Nothing is deleted on the store.
    """
    from ratioscope.ingest.maintenance.push import Pushed

    with ended_in_order():
        done = _pushed(run, url, follow, every)
    assert isinstance(done, Pushed)
    if as_json:
        print_json(asdict(done))
        return
    rate = f", {size_on_disk(done.bytes / done.seconds)}/s" if done.seconds > 0 and done.files else ""
    say(
        f"uploaded {done.files:,} files of {size_on_disk(done.bytes)} in {done.seconds:,.1f} s{rate}; {done.there:,} were there"
    )


def _pushed(
    run: OwnRun, url: str, follow: bool, every: float, sleep: Callable[[float], object] = time.sleep
) -> "Pushed":
    """The sum of all uploads; one upload without follow. A store that fails after the first upload is tried again."""
    from ratioscope.ingest.maintenance.push import push as upload
    from ratioscope.ingest.remote.store import Unreachable
    from ratioscope.ingest.run import open_run

    ended = not follow or has_ended(open_run(run))
    with transfer("uploading") as progress:
        done = upload(run, url, progress)
    while not ended:
        sleep(every)
        ended = has_ended(open_run(run))  # before the upload: a run that ended writes no more
        try:
            with transfer("uploading") as progress:
                more = upload(run, url, progress)
        except Unreachable as error:  # a night has more of them than runs
            note(f"{error}; the next upload is tried in {every:g} seconds")
            ended = False
            continue
        done.files, done.bytes, done.seconds = (
            done.files + more.files,
            done.bytes + more.bytes,
            done.seconds + more.seconds,
        )
    return done
