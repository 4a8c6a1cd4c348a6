"""What every command prints with: results on standard output, progress and errors on standard error.

Colours, bars and fitting to a width are for people: where the stream is no terminal there are none of them, and no line is
cut. Text from outside passes through `escape.terminal` and never through rich's markup.
"""

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..presentation.escape import terminal as shown
from ..presentation.json_values import jsonable

if TYPE_CHECKING:
    from rich.console import Console

UNCUT = 100_000
"""Width of a stream that is no terminal: wide enough that no line is ever broken."""
BETWEEN = 3
"""Cells between two columns of a table."""
STYLES = {"healthy": "green", "watch": "yellow", "act": "bold red"}


def console(*, stderr: bool = False) -> "Console":
    """A rich console that takes every string literally: no markup, no emoji codes, no highlighting."""
    from rich.console import Console

    is_terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if is_terminal else UNCUT
    return Console(stderr=stderr, width=width, markup=False, emoji=False, highlight=False, soft_wrap=not is_terminal)


def error(message: str) -> None:
    """One line on standard error, whatever the message holds."""
    line = f"error: {shown(message.strip())}"
    print(line, file=sys.stderr)


def say(line: str = "", style: str | None = None) -> None:
    """One line on standard output. style: a severity, which wears its colour, or one of rich's."""
    console().print(shown(line), style=STYLES.get(style or "", style))


def say_gap(gap: str, run: str) -> None:
    """The title of what is read of one gap of a run."""
    from ratioscope.record import GAPS

    earlier, later = GAPS[gap]
    say(f"{gap}: {later} - {earlier}, {run}", "bold")


def print_json(value: Any) -> None:
    """The value as JSON that any parser takes: one line per row of a list; infinities and NaN become strings."""
    plain = jsonable(value)
    if isinstance(plain, list):
        rows = ",\n ".join(json.dumps(row) for row in plain)
        print(f"[{rows}]")
    else:
        print(json.dumps(plain, indent=2))


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """A table, its first column aligned left, the others right; a cell that is a severity wears its colour.

    In a terminal that is too narrow the last columns are left out, never cut, and a line below says which; a first column that
    does not fit alone is folded. So the columns that matter most come first.
    """
    from rich import box
    from rich.table import Table
    from rich.text import Text

    out, lines = console(), list(rows)
    fitting = _fitting(header, lines, out.width)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="bold")
    for index, title in enumerate(header[:fitting]):
        own = Text(shown(title))
        table.add_column(own, justify="right" if index else "left", no_wrap=fitting > 1, overflow="fold")
    for row in lines:
        table.add_row(*(Text(shown(cell), style=STYLES.get(cell, "")) for cell in row[:fitting]))
    out.print(table)
    if left_out := header[fitting:]:
        more = "1 more column does" if len(left_out) == 1 else f"{len(left_out)} more columns do"
        say(f"{more} not fit in this terminal: {', '.join(left_out)}; a wider one shows more, --json all", "dim")


def _fitting(header: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> int:
    """How many of the columns fit side by side, at least one."""
    from rich.cells import cell_len

    used = 0
    for index, title in enumerate(header):
        used += max(map(cell_len, (shown(title), *(shown(row[index]) for row in rows)))) + BETWEEN * bool(index)
        if used > width:
            return max(index, 1)
    return len(header)


def print_pairs(pairs: Sequence[tuple[str, str]]) -> None:
    """Labelled lines, their values aligned; in a terminal a long value folds below itself."""
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
        table.add_row(Text(shown(label), style="dim"), Text(shown(value)))
    out.print(table)


@contextmanager
def working(title: str) -> Iterator[None]:
    """A spinner on standard error while something takes long; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with console(stderr=True).status(shown(title)):
        yield


@contextmanager
def stages(title: str, total: int) -> Iterator[Callable[[str], None]]:
    """A progress bar on standard error; call what it yields with the name of each stage begun. Silent off a terminal."""
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
    """A progress bar on standard error for work that tells how many of how many are done; appears with its first word."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task(shown(title), total=None, visible=False)
        yield lambda done, total: progress.update(task, completed=done, total=total, visible=True)
