"""Commands to try after a command: the last lines that info, metrics, corrections and diagnose print."""

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ratioscope.metrics.dialects import NAMES
from ratioscope.metrics.known.trainers import DIALECT, trainer_named

from ..presentation.run_names import typed_path
from .terminal import console, say

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

Next = tuple[str, str]
"""(a command after `ratioscope`, in which RUN stands for the run; what it shows)."""
WHY: Next = ("diagnose RUN", "why the policies are apart, and what to do")
PAGES: Next = ("dashboard RUN", "every chart, sequence and token")
STEPS: Next = ("metrics RUN", "the numbers of each step")
SEND: Next = ("report RUN", "one file to send to others")
BY_LAG: Next = ("metrics RUN --by step,lag", "the same by lag; also by replica, position, turn")
BY_POSITION: Next = ("metrics RUN --by step,position", "the same by position; also by probability")

LOGGED: Next = ("metrics RUN --logged", "every number under the trainer's own name")


def after_info(run: "Run", *, is_healthy: bool) -> tuple[Next, ...]:
    """A healthy run leads to its numbers, any other one to its diagnosis, if it has a gap that can be diagnosed.

    A run without tokens leads to the numbers that its trainer logged.
    """
    if run.no_tokens:
        return (LOGGED, PAGES)
    return (STEPS, PAGES) if is_healthy else (*_why(run), PAGES)


def after_metrics(run: "Run", shown: Sequence[str], keys: Sequence[str]) -> tuple[Next, ...]:
    """shown: the metrics of the table. keys: the columns that name its rows; a table by step alone leads to a slice of it."""
    card = tuple((f"explain {name}", "how to read it") for name in shown[:1])
    if run.no_tokens or not run.gaps:
        return (*card, LOGGED if run.no_tokens else PAGES)
    if tuple(keys) != ("step",):
        return (*card, *_why(run))
    return (*card, BY_LAG if "trainer_version" in run.columns else BY_POSITION)


def _why(run: "Run") -> tuple[Next, ...]:
    from ratioscope.metrics.metric import SAMPLED

    return (WHY,) if set(SAMPLED) & set(run.gaps) and not run.no_tokens else ()


def after_corrections(run: "Run", dialect: str | None, *, is_chosen: bool) -> tuple[Next, ...]:
    """dialect: the trainer whose presets were shown; None for the usual corrections. is_chosen: only chosen presets were."""
    why = _why(run)
    if not why:
        return (LOGGED,) if run.no_tokens else (PAGES,)
    if dialect is not None and is_chosen:
        return ((f"corrections RUN --dialect {dialect}", "every preset beside it"), *why)
    if dialect is not None:
        return ((f"corrections RUN --dialect {dialect} --preset NAME", "one preset, with its settings"), *why)
    named = trainer_with_presets(run)
    return ((f"corrections RUN --dialect {named or 'TRAINER'}", f"the presets of {named or 'your trainer'}"), *why)


def after_diagnose(run: "Run", *, is_bridged: bool) -> tuple[Next, ...]:
    """is_bridged: True if a correction helps until the cause is gone."""
    named = trainer_with_presets(run)
    own = (f"corrections RUN{f' --dialect {named}' if named else ''}", "the effects of corrections on this run")
    return (*([own] if is_bridged else []), PAGES, SEND)


def print_next(run: "Run", steps: Sequence[Next]) -> None:
    """Prints the commands below a blank line, with the path of the run in place of RUN."""
    path = shlex.quote(typed_path(run.place))
    say()
    for place, (command, what) in enumerate(steps):
        head, tail = command.split(" ", 1) if " " in command else (command, "")
        argument = tail.replace("RUN", path, 1) if tail.startswith("RUN") else tail
        line = f"{'next:' if not place else '     '} ratioscope {head} {argument}"
        fits = len(line) + len(what) + 3 <= console().width
        for words in [f"{line}   {what}"] if fits else [line, f"{' ' * 9}{what}"]:
            say(words, "dim")


def trainer_with_presets(run: "Run") -> str | None:
    """The trainer on record if it has presets of corrections."""
    named = trainer_named(run.info.get("trainer")) or ""
    own = DIALECT.get(named, named)
    return own if own in NAMES else None
