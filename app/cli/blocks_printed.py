"""Blocks in a terminal, as lines, aligned facts and tables.

In a narrow terminal values are folded and tables broken; where the stream is no terminal no line is cut. Buttons and charts are
left out. Text from outside passes through `escape.terminal` and never through rich's markup.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from .. import blocks
from ..blocks import Block, Code, Heading, Table
from ..presentation.escape import terminal as shown
from .terminal import STYLES, console, say

if TYPE_CHECKING:
    from rich.console import Console

BETWEEN = 3
"""Cells between two columns of a table."""
MOST_FOLDED = 40
"""Most rows above columns that continue below them. Below more the reader would lose the row of a number."""
TONES = {"lead": "bold", "answer": "bold", "": "", "warning": "watch", "good": "healthy"}
"""The tone of a paragraph -> its style; an aside is dim."""


def print_blocks(shown_blocks: Iterable[Block]) -> None:
    """Prints the blocks below each other, on standard output."""
    for block in shown_blocks:
        _PRINTED[type(block)](block)


def _heading(block: Heading) -> None:
    say()
    say(block.text, "bold")


def _paragraph(block: blocks.Paragraph) -> None:
    say(f"{block.head} {block.text}" if block.head else block.text, TONES.get(block.tone, "dim"))


def _facts(block: blocks.Facts | blocks.Links) -> None:
    print_pairs([(name, text) for name, text, *_ in block.rows])


def _cards(block: blocks.Cards) -> None:
    print_pairs([(name, f"{value} ({about})" if about else value) for name, value, about in block.rows])


def _table(block: Table) -> None:
    from ..presentation.value_text import cell_texts

    if block.shown.is_empty() and block.none:
        say(block.none, "dim")
        return
    columns = [own for own in block.shown.iter_columns() if not own.dtype.is_nested()]
    print_table([block.title_of(own.name) for own in columns], [*zip(*map(cell_texts, columns), strict=True)])


def _drawer(block: blocks.Drawer) -> None:
    _heading(Heading(block.title))
    print_blocks(block.blocks())


def _markup(block: blocks.Markup) -> None:
    if block.numbers is not None:
        _table(Table(block.title, block.numbers))


def _tokens(block: blocks.TintedSequence) -> None:
    say(f"{block.title} {block.facts}", "bold")
    for part in filter(None, (block.prompt, block.more)):
        say(part, "dim")


def _code(block: Code) -> None:
    for line in block.lines:
        say(f"    {line}")


def _json(block: blocks.Json) -> None:
    text = json.dumps(block.value, indent=2, ensure_ascii=False, default=str)
    _drawer(blocks.Drawer(block.title, lambda: (Code(text.split("\n")),)))


def _verdict(block: blocks.Verdict) -> None:
    say(f"{block.severity}: {block.title}", block.severity)
    print_pairs(block.facts)


def _left_out(block: Block) -> None:
    """A terminal cannot act, draw or wait."""


_PRINTED: dict[type[Any], Callable[[Any], None]] = {
    Heading: _heading, blocks.Paragraph: _paragraph, blocks.Facts: _facts, blocks.Cards: _cards, Table: _table,
    blocks.Chart: _left_out, blocks.Charts: _left_out, blocks.Action: _left_out, blocks.Actions: _left_out,
    blocks.Waiting: _left_out, blocks.Numbers: _left_out, blocks.Beside: lambda block: print_blocks(chain(*block.columns)),
    blocks.At: lambda block: print_blocks(block.blocks), blocks.Box: lambda block: print_blocks(block.blocks),
    blocks.Part: lambda block: print_blocks(block.blocks()), blocks.Drawer: _drawer, blocks.Markup: _markup, Code: _code,
    blocks.TintedSequence: _tokens, blocks.Json: _json, blocks.Links: _facts, blocks.Verdict: _verdict,
}  # fmt: skip
"""Type of a block -> the function that prints it. Any: each function takes the blocks of its own type."""


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Prints a table. The first column is aligned left, the others right. A cell that is a severity has its colour.

    In a narrow terminal titles are broken between words. Columns that still do not fit follow in a table of their own, below the
    first column again, and one that is too wide even there is folded. A table of more than MOST_FOLDED rows is broken into such
    tables of so many rows each. No number is cut, and no column left out. A first column that does not fit alone is folded.
    Callers put the columns that matter most first.
    """
    out, lines = console(), list(rows)
    titles = list(header)
    if _fitting(titles, lines, out.width) < len(titles):
        widest = [max((len(row[index]) for row in lines), default=0) for index in range(len(titles))]
        titles = [
            title.replace(" ", "\n") if len(title) > wide else title for title, wide in zip(titles, widest, strict=True)
        ]
    parts = list(_parts(titles, lines, out.width)) or [[0]]
    height = MOST_FOLDED if len(parts) > 1 else max(len(lines), 1)
    for first in range(0, max(len(lines), 1), height):
        for place, part in enumerate(parts):
            if first or place:
                out.print()
            own = [[row[index] for index in part] for row in lines[first : first + height]]
            _print_columns(out, [titles[index] for index in part], own)


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


def _parts(titles: Sequence[str], rows: Sequence[Sequence[str]], width: int) -> Iterator[list[int]]:
    """The columns of each table, by their places: as many as fit, then the first column with as many more as fit."""
    waiting = list(range(1, len(titles)))
    while waiting:
        order = [0, *waiting]
        fitting = _fitting([titles[at] for at in order], [[row[at] for at in order] for row in rows], width)
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
        table.add_row(Text(shown(label), style="dim", overflow="fold"), Text(shown(value), overflow="fold"))
    out.print(table)
