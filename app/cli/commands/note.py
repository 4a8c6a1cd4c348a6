"""`ratioscope note RUN TEXT`: writes what a person knows of a run to the place where everybody looks."""

from dataclasses import asdict
from typing import Annotated

import typer

from ..terminal import print_json, say, working
from .arguments import AsJson, OwnRun

TextArgument = Annotated[str, typer.Argument(metavar="TEXT", help='The event, e.g. "restarted node 7".')]
StepOption = Annotated[
    int | None,
    typer.Option(min=0, max=2**63 - 1, help="The step at which it happened; else the newest step on record."),
]


def note(run: OwnRun, text: TextArgument, step: StepOption = None, as_json: AsJson = False) -> int:
    """Note an event of your own in a run, also while it is being recorded.

    Charts over steps mark the note; the report and info list it. It cannot be changed later. Text that looks like a secret is
    left out.
    """
    from ...upkeep.notes import note as write

    with working(f"writing to {run}"):
        written = write(run, text, step)
    if as_json:
        print_json(asdict(written))
    else:
        say(f"noted at step {written.step}: {written.text}")
    return 0
