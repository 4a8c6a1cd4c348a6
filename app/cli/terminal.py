"""The printing functions of all commands: results on standard output, progress and errors on standard error.

Colours, bars and fitting to a width are for people. If the stream is no terminal there are none of them, and no line is cut.
Text from outside passes through `escape.terminal` and never through rich's markup.
"""

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from ..presentation.escape import terminal as shown
from ..presentation.json_values import jsonable

if TYPE_CHECKING:
    from rich.console import Console

MOST_SHOWN = 12
"""Most lines of one kind in the terminal; --json has all."""
UNCUT = 100_000
"""Width of a stream that is no terminal: wide enough that no line is ever broken."""
STYLES = {"healthy": "green", "watch": "yellow", "act": "bold red", "partly measured": "yellow", "not measured": "dim"}


def console(*, stderr: bool = False) -> "Console":
    """A rich console that takes every string literally: no markup, no emoji codes, no highlighting."""
    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if is_terminal else UNCUT
    return _console()(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, soft_wrap=not is_terminal)


@cache
def _console() -> "type[Console]":
    from rich.console import Console

    class Outlasting(Console):
        """A console whose reader may leave, as `| head` does: the verb goes on, because its exit code is an answer too."""

        def on_broken_pipe(self) -> None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.file.fileno())
            os.close(nowhere)

    return Outlasting


def error(message: str) -> None:
    """Prints the message as one line on standard error, even if it contains line breaks."""
    line = f"error: {shown(message.strip())}"
    print(line, file=sys.stderr)


def note(message: str) -> None:
    """Prints a line on standard error that is no error: standard output holds the answer alone."""
    console(stderr=True).print(shown(" ".join(message.split())), soft_wrap=True)


def say(line: str = "", style: str | None = None) -> None:
    """Prints one line on standard output. style: a severity, for its colour, or a style of rich."""
    console().print(shown(line), style=STYLES.get(style or "", style))


def first_of(lines: Sequence[str]) -> list[str]:
    """The first lines of a list, and the number of the others, which --json has."""
    more = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], *([f"and {more} more: --json"] if more > 0 else [])]


def say_gap(gap: str, run: str) -> None:
    """Prints the title above the numbers of one gap of a run."""
    from ratioscope.record import sides

    earlier, later = sides(gap)
    say(f"{gap}: {later} - {earlier}, {run}", "bold")


def print_json(value: Any) -> None:
    """Prints the value as JSON that any parser takes: one line per row of a list; infinities and NaN become strings."""
    plain = jsonable(value)
    if isinstance(plain, list):
        rows = ",\n ".join(json.dumps(row) for row in plain)
        print(f"[{rows}]")
    else:
        print(json.dumps(plain, indent=2))


@contextmanager
def working(title: str) -> Iterator[None]:
    """Shows a spinner on standard error during a long task, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(shown(title)):
        yield


@contextmanager
def stages(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """Shows a progress bar on standard error, if that is a terminal. Call the yielded function with each new stage's name."""
    if not sys.stderr.isatty():
        yield lambda stage: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(shown(title), total=total)
        yield lambda stage: progress.update(task, advance=1, description=shown(f"{title}: {stage}"))


def counting(title: str) -> AbstractContextManager[Callable[..., None] | None]:
    """Shows a progress bar and the time left on standard error. Call the yielded function with (done, total), and with the name
    of what comes next if it has one; the first call shows the bar."""
    return _bar(title, "BarColumn", "MofNCompleteColumn", "TimeRemainingColumn")


def transfer(title: str) -> AbstractContextManager[Callable[[int, int], None] | None]:
    """Shows bytes, rate and time left on standard error, if that is a terminal. Call the yielded function with (done, total)."""
    return _bar(title, "BarColumn", "DownloadColumn", "TransferSpeedColumn", "TimeRemainingColumn")


@contextmanager
def _bar(title: str, *columns: str) -> Iterator[Callable[..., None] | None]:
    """columns: names of columns of rich."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich import progress

    shown_columns = (
        progress.TextColumn("{task.description}", markup=False),
        *(getattr(progress, name)() for name in columns),
    )
    with progress.Progress(*shown_columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task(shown(title), total=None, visible=False)
        yield lambda done, total, stage="": bar.update(
            task, completed=done, total=total, visible=True, description=shown(f"{title}: {stage}" if stage else title)
        )
