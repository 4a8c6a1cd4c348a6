"""`ratioscope prune RUN`: deletes files that a merge replaced, and token rows of old steps. Statistics stay."""

import time
from dataclasses import asdict
from typing import Annotated

import typer

from ...presentation.digits import count, size_on_disk
from ..terminal import first_of, print_json, say, working
from .arguments import AsJson, OwnRun, WritersEnded

_DAY = 86_400.0

KeepStepsOption = Annotated[int | None, typer.Option(min=0, help="Delete token rows of all steps except the newest N.")]
OlderThanOption = Annotated[
    float | None, typer.Option(min=0, metavar="DAYS", help="Delete token rows that are older than DAYS days.")
]
YesOption = Annotated[bool, typer.Option("--yes", help="Delete the files. Without --yes, only list them.")]


def prune(
    run: OwnRun,
    keep_steps: KeepStepsOption = None,
    older_than: OlderThanOption = None,
    yes: YesOption = False,
    writers_ended: WritersEnded = False,
    as_json: AsJson = False,
) -> int:
    """Delete files that compact replaced, after verifying the new files; with a limit, delete token rows of old steps too."""
    from ratioscope.ingest.maintenance.pruning import Old

    from ...upkeep.maintenance import prune as delete

    before = None if older_than is None else time.time() - older_than * _DAY
    old = None if keep_steps is None and before is None else Old(keep_steps, before)
    with working(f"pruning {run}"):
        done = delete(run, old, yes=yes, writers_ended=writers_ended)
    if as_json:
        print_json({"deleted": yes, **asdict(done)})
        return 0
    rows = f", with them the token rows of {count(len(done.steps), 'step')}" if done.steps else ""
    size = f"{count(len(done.files), 'file')} of {size_on_disk(done.bytes)}"
    say(f"{size} {'deleted' if yes else 'would be deleted'}{rows}" if done.files else "nothing to delete")
    if done.files and not yes:
        say("to delete them: --yes")
    for line in first_of([f"kept: {item.what}: {item.reason}" for item in done.skipped]):
        say(line)
    return 0
