"""The process that answers one question: a verb that prints JSON, on the run as it may leave this machine.

A process of its own ends when its time is over, and takes its memory with it. Without --text it reads no prompt and no token
text.
"""

import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.errors import RatioscopeError

from .. import main
from ..agents.questions import MOST_SEQUENCES, TEXT, served
from ..terminal import print_json
from .arguments import gaps_of_readings, opened, shown_as

if TYPE_CHECKING:
    from ...pages.worst import WorstSequence

AT_ONCE = 50
"""Runs of one answer: each is opened."""
SUMMARY = ("name", "trainer", "steps", "severity", "title", "since", "gap", "size", "tags")
"""Fields of a `Summary`."""
FirstOption = Annotated[int, typer.Option(min=0)]
MostOption = Annotated[int, typer.Option(min=1, max=MOST_SEQUENCES)]


def runs(root: Path, first: FirstOption = 0) -> None:
    """Print the runs of a folder, a row for each."""
    found, tree = served(root)
    shown = [_row(name, path) for name, path in list(found.items())[first : first + AT_ONCE]]
    print_json({"runs": len(found), "first": first, "not_searched": tree.note, "rows": shown})


def _row(name: str, path: Path) -> dict[str, Any]:
    from ...pages.folder import summary_of
    from ...presentation.run_state import state_of

    try:
        summary = summary_of(opened(path))
    except RatioscopeError as error:
        return {"run": name, "error": str(error)}
    return {"run": name, "state": state_of(path).life, **{field: getattr(summary, field) for field in SUMMARY}}


def worst(run: Path, gap: Annotated[str | None, typer.Option()] = None, most: MostOption = 2) -> None:
    """Print the worst sequences of a run and their tokens around the worst one."""
    from ratioscope.ingest.analysis.copies import judged_first
    from ratioscope.ingest.analysis.judged_verdict import judged_verdict

    from ...pages.worst import plain_worst
    from ...pages.worst_of_run import samples_of, why_none

    own = opened(run)
    chosen = gap or judged_verdict(own).gap or next(iter(judged_first(own)), "mismatch")
    gaps_of_readings(own, [chosen])
    found = [_brief(item) for item in samples_of(own, chosen)[:most]]
    absent = {} if found else {"absent": why_none(own, chosen)}
    print_json({"gap": chosen, **absent, "sequences": [plain_worst(item) for item in found]})


def _brief(item: "WorstSequence") -> "WorstSequence":
    """The sequence without columns that are null, and without those that repeat facts of the sequence at each token."""
    own = item.tokens.columns[item.tokens.columns.index("position") :]
    return replace(item, tokens=item.tokens.select(name for name in own if not item.tokens[name].is_null().all()))


def _answered(texts: str, *command: str) -> int:
    from ...presentation.without_texts import on_paper, without_prompts

    with shown_as(partial(on_paper, text=True) if texts == TEXT else without_prompts):
        return main(command, also=(runs, worst))


if __name__ == "__main__":
    raise SystemExit(_answered(*sys.argv[1:]))
