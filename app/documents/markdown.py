"""Blocks as Markdown, for pull requests and job summaries. Every text is scrubbed and escaped here, once.

Pictures are their words, lines of a table are block characters. Drawers are left out, but for those that are printed.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import polars as pl

from .. import blocks
from ..blocks import Block, Facts, Paragraph, Table, parts_of
from ..presentation.digits import count
from ..presentation.escape import markdown as escaped
from ..presentation.escape import visible
from ..presentation.privacy import scrubbed_text
from ..presentation.sparkline import blocks as sparks
from ..presentation.theme import MARKS
from .html import numbers_of, texts_of

ROWS = 64
"""Most rows of a table."""
TEXT_SHOWN = 300
"""Characters of a sequence's text."""
TITLE = "### "
CODE = " " * 6
"""Indentation of a line of code in an item of a list. No text of the line can end the code."""


def markdown(shown: Iterable[Block]) -> str:
    """The blocks below each other."""
    texts = [text for block in shown if (text := _MARKDOWN[type(block)](block))]
    return "\n\n".join(
        text for text, after in pairwise((*texts, TITLE)) if _is_filled(text) or not after.startswith(TITLE)
    )


def _is_filled(text: str) -> bool:
    """False for a title alone. If another one follows, all that stood below it was pictures."""
    return not text.startswith(TITLE) or "\n" in text


def _text(text: str, limit: int | None = None) -> str:
    return escaped(scrubbed_text(text), limit)


def _words(block: Paragraph) -> str:
    said = "".join(f"`{visible(part)}`" if is_code else _text(part) for part, is_code in parts_of(block.text))
    if block.tone in ("lead", "answer"):
        said = f"**{said}**"
    return f"**{_text(block.head)}** {said}" if block.head else said


def _facts(block: Facts) -> str:
    return "\n".join(f"- **{_text(name)}**: {_text(text)}" for name, text in block.rows)


def _table(block: Table) -> str:
    frame = block.shown
    if frame.is_empty() and block.none:
        return _text(block.none)
    columns = [*frame.head(ROWS).iter_columns()]
    titles = [block.title_of(own.name) for own in columns]
    kinds = [":" if is_number else "" for is_number in numbers_of(block, columns)]
    rows = zip(*map(_cells, columns), strict=True)
    cut = f"\n\nThe first {ROWS} of {count(len(frame), 'row')}." if len(frame) > ROWS else ""
    return "\n".join((_row(titles), f"|{'|'.join(f' ---{kind} ' for kind in kinds)}|", *map(_row, rows))) + cut


def _cells(column: pl.Series) -> Iterator[str]:
    if column.dtype == pl.List:
        return ("" if values is None else sparks(values.to_list()) for values in column)
    return iter(texts_of(column))


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(escaped(cell) for cell in cells)} |"


def _chart(block: blocks.Chart) -> str:
    return _words(Paragraph(block.text or f"Chart: {block.label}"))


def _actions(block: blocks.Actions) -> str:
    """The words of a list: nothing can be clicked."""
    items = "\n".join(f"- {_text(action.words)}" for action in block.actions) if block.is_list else ""
    return f"{_text(block.before)}\n\n{items}" if items else ""


def _markup(block: blocks.Markup) -> str:
    """Its numbers; without them it is a picture."""
    return "" if block.numbers is None else _table(Table(block.title, block.numbers))


def _tokens(block: blocks.TintedSequence) -> str:
    lines = [f"**{_text(block.title)}** {_text(block.facts)}"]
    lines += [f"<br>worst tokens: {', '.join(map(_text, block.worst))}"] if block.worst else []
    lines += [f"<br>{_text(block.text, TEXT_SHOWN)}"] if block.text else []
    return "\n".join(lines)


def _code(block: blocks.Code) -> str:
    return "- settings:\n\n" + "\n".join(f"{CODE}{visible(line)}" for line in block.lines)


def _verdict(block: blocks.Verdict) -> str:
    return f"# {MARKS[block.severity]} {block.severity}: {_text(block.title)}\n\n{_facts(Facts(block.facts))}"


def _drawer(block: blocks.Drawer) -> str:
    return f"{TITLE}{_text(block.title)}\n\n{markdown(block.blocks())}" if block.is_printed else ""


def _left_out(block: Block) -> str:
    return ""


_MARKDOWN: dict[type[Any], Callable[[Any], str]] = {
    blocks.Heading: lambda block: f"{TITLE}{_text(block.text)}",
    Paragraph: _words,
    Facts: _facts,
    blocks.Cards: lambda block: _facts(Facts([(name, text) for name, text, _ in block.rows])),
    Table: _table,
    blocks.Chart: _chart,
    blocks.Charts: lambda block: "",  # their numbers stand in tables
    blocks.Beside: lambda block: "\n\n".join(map(markdown, block.columns)),
    blocks.At: lambda block: markdown(block.blocks),
    blocks.Action: _left_out,
    blocks.Actions: _actions,
    blocks.Box: lambda block: markdown(block.blocks),
    blocks.Part: lambda block: markdown(block.blocks()),
    blocks.Waiting: _left_out,
    blocks.Numbers: _left_out,
    blocks.Markup: _markup,
    blocks.TintedSequence: _tokens,
    blocks.Code: _code,
    blocks.Json: _left_out,
    blocks.Links: lambda block: _facts(Facts([(name, words) for name, words, _, _ in block.rows])),
    blocks.Verdict: _verdict,
    blocks.Drawer: _drawer,
}
"""Type of a block -> the function that writes it. Any: each function takes the blocks of its own type."""
