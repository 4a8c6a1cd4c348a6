"""The printing functions of all commands: results on standard output, progress and errors on standard error.

Colours, bars and fitting to a width are for people. If the stream is no terminal there are none of them, and no line is cut.
Text from outside passes through `escape.terminal` and never through rich's markup.
"""

import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any

from ..presentation.escape import terminal as shown
from ..presentation.json_values import jsonable

if TYPE_CHECKING:
    from rich.console import Console

UNCUT = 100_000
"""Width of a stream that is no terminal: wide enough that no line is ever broken."""
BETWEEN = 3
"""Cells between two columns of a table."""
MOST_FOLDED = 40
"""Most rows of a table whose columns continue below it. In a longer one the reader would lose the row of a number."""
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


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table. The first column is aligned left, the others right. A cell that is a severity has its colour.

    In a narrow terminal titles are broken between words. Columns that still do not fit follow in a table of their own, below the
    first column again, and one that is too wide even there is folded. Beyond MOST_FOLDED rows they are left out, and a line
    below names them. No number is cut. A first column that does not fit alone is folded. Callers put the columns that matter most
    first.
    """
    out, lines = console(), list(rows)
    titles = list(header)
    if _fitting(titles, lines, out.width) < len(titles):
        widest = [max((len(row[index]) for row in lines), default=0) for index in range(len(titles))]
        titles = [
            title.replace(" ", "\n") if len(title) > wide else title for title, wide in zip(titles, widest, strict=True)
        ]
    is_short = len(lines) <= MOST_FOLDED
    every = _parts(titles, lines, out.width, folds=is_short)
    parts = list(every if is_short else islice(every, 1)) or [[0]]
    for place, part in enumerate(parts):
        if place:
            out.print()
        _print_columns(out, [titles[index] for index in part], [[row[index] for index in part] for row in lines])
    printed = {index for part in parts for index in part}
    if left_out := [title for index, title in enumerate(header) if index not in printed]:
        more = "1 more column does" if len(left_out) == 1 else f"{len(left_out)} more columns do"
        say(f"{more} not fit in this terminal: {', '.join(left_out)}; a wider one shows more, --json all", "dim")


def _print_columns(out: "Console", titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Prints columns side by side. If they do not fit, the widest are folded."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    fits = _fitting(titles, rows, out.width) == len(titles)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, title in enumerate(titles):
        own = Text("\n".join(map(shown, title.split("\n"))))
        table.add_column(own, justify="right" if index else "left", no_wrap=fits, overflow="fold")
    for row in rows:
        table.add_row(*(Text(shown(cell), style=STYLES.get(cell, "")) for cell in row))
    out.print(table)


def _parts(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int, *, folds: bool) -> Iterator[list[int]]:
    """The columns of each table, by their places: as many as fit, then the first column with as many more as fit.

    A column that does not fit beside the first one has a table for itself and the first one if it `folds`, else none.
    """
    waiting = list(range(1, len(titles)))
    while waiting:
        order = [0, *waiting]
        fitting = _fitting([titles[at] for at in order], [[row[at] for at in order] for row in rows], width)
        if fitting > 1 or folds:
            yield order[: max(fitting, 2)]
        waiting = waiting[max(fitting - 1, 1) :]


def _fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """Number of columns that fit side by side, at least one."""
    from rich.cells import cell_len

    used = 0
    for index, title in enumerate(header):
        lines = (*map(shown, title.split("\n")), *(shown(row[index]) for row in rows))
        used += max(map(cell_len, lines)) + BETWEEN * bool(index)
        if used > width:
            return max(index, 1)
    return len(header)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Prints labelled lines with aligned values. In a terminal a long value is folded below itself."""
    from rich.table import Table
    from rich.text import Text

    out = console()
    if not out.is_terminal:
        widest = max((len(label) for label, _ in pairs), default=0)
        for label, value in pairs:
            print(f"{shown(label):{widest}}  {shown(value)}")
        return
    table = Table.grid(padding=(0, 2))
    for label, value in pairs:
        table.add_row(Text(shown(label), style="dim"), Text(shown(value), overflow="fold"))
    out.print(table)


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


@contextmanager
def counting(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows a progress bar on standard error. Call the yielded function with (done, total); the first call shows the bar."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(shown(title), total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)


@contextmanager
def transfer(title: str) -> Iterator[Callable[[int, int], None] | None]:
    """Shows bytes, rate and time left on standard error, if that is a terminal. Call the yielded function with (done, total)."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

    words = TextColumn("{task.description}", markup=False)
    columns = words, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(shown(title), total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)
