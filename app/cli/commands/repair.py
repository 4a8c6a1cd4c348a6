"""`ratioscope repair RUN`: restores what recorded data determine. It edits no file in place and loses no data."""

from typing import Annotated

import typer

from ...presentation.digits import count
from ..terminal import print_json, say, working
from .arguments import AsJson, OwnRun, WritersEnded

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only list what would be done.")]


def repair(
    run: OwnRun, dry_run: DryRunOption = False, writers_ended: WritersEnded = False, as_json: AsJson = False
) -> int:
    """Commit complete files that no commit names, recompute lost statistics from token rows, set unreadable files aside."""
    from ...upkeep.maintenance import repair as restore

    with working(f"repairing {run}"):
        done = restore(run, dry_run=dry_run, writers_ended=writers_ended)
    if as_json:
        print_json({"dry_run": dry_run, "done": done})
        return 0
    for line in done:
        say(line)
    if not done:
        say("nothing to repair")
    elif dry_run:
        say(f"{count(len(done), 'repair')} to do; nothing was changed, because of --dry-run")
    return 0
