"""The page of a run that has nothing to show yet: the lines that attach to the reader's trainer."""

from collections.abc import Iterator, Sequence

from ..blocks import Action, Actions, Block, Code, Link, Paragraph
from ..presentation.near_names import near_names
from ..presentation.run_names import typed_path
from ..presentation.sentence import capital
from .face import Choice, Face
from .logged_numbers import recovered
from .scope import Scope

MOST_OFFERED = 20
"""Most runs that are listed in place of one that is not served."""
FIRST = "TRL"
"""The trainer that is shown first if run.json names none."""
WAITS = "This page updates by itself as soon as there is something to show."


def no_gap_yet(why: str, scope: Scope) -> Iterator[Block]:
    """Advice for a run that has no gap to show. why: see why_no_gap."""
    state, run = scope.view.state, scope.view.run
    over = "The run has ended." if state.ended else "The run is dead."
    yield Paragraph(f"{capital(why)} {WAITS if state.may_grow else over}", "info")
    yield from how_to_attach(scope.face, run.place, run.info.get("trainer"))


def no_tokens(scope: Scope) -> Iterator[Block]:
    """The page about tokens of a run that can have none."""
    why = f"Not available, because {scope.view.run.no_tokens}. Overview and Charts show what the log holds."
    yield Paragraph(why, "info")
    yield from recovered(scope)


def not_served(wanted: str, names: Sequence[str], waits: str, scope: Scope) -> Iterator[Block]:
    """The page of an address whose run is not served: the served ones to choose from, and nothing of any of them."""
    yield Paragraph(f"of this address is not served here, or no longer.{waits}", "warning", f"The run {wanted}")
    more = f", {MOST_OFFERED} of {len(names):,}" if len(names) > MOST_OFFERED else ""
    ranked = [*dict.fromkeys((*near_names(wanted, names), *names))][:MOST_OFFERED]
    offered = [Action(f"open_{name}", name, Link("", {"run": name}), is_plain=True) for name in ranked]
    yield Paragraph(f"Served here, the nearest name first{more}:", "muted")
    yield Actions("served_here", tuple(offered), is_list=True)


def none_served(roots: Sequence[str], scope: Scope) -> Iterator[Block]:
    """Advice for folders in which no run has begun yet."""
    yield Paragraph(f"There is no run in {', '.join(roots)} yet. {WAITS}", "info")
    if scope.runs.note:
        yield Paragraph(scope.runs.note, "muted")
    yield from how_to_attach(scope.face, f"{roots[0]}/my-run")


def how_to_attach(face: Face, path: str = "", trainer: object = None) -> Iterator[Block]:
    """The lines to paste for a trainer: the run's own if it is known, else the one that the reader chooses."""
    from ..presentation.trainers import (  # imports the collectors' table of trainers
        OTHER,
        TITLES,
        chosen_lines,
        title_of,
    )

    known = title_of(trainer) or FIRST
    chosen = face.ask(Choice("attach_to", "your trainer", [*TITLES, OTHER], known, width=280))
    for what_for, lines in chosen_lines(chosen, typed_path(path) or "runs/my-run"):
        yield Paragraph(what_for, "muted")
        yield Code(lines.split("\n"), "python" if lines.startswith("import") else "bash")
