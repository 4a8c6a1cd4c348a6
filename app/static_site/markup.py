"""Blocks as HTML. Every text is escaped here, once; only figures and `figures/html` give markup."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..presentation.escape import html as escaped
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.theme import MARKS
from ..report.drawings import Drawing
from .blocks import (
    Block,
    Chart,
    Charts,
    Code,
    Drawer,
    Facts,
    Heading,
    Links,
    Markup,
    Paragraph,
    Table,
    TintedSequence,
    Verdict,
)

SHARE = '<svg class="share" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'


@dataclass(frozen=True)
class Inside:
    """The file that the blocks stand in."""

    drawn: Mapping[str, Drawing]
    """The charts of the file by their names."""
    address: Callable[[str], str]
    """Path of a page -> the address of a link to it."""
    paths: frozenset[str]
    """The pages that there are: a link to another one is text."""


def charts_of(blocks: Sequence[Block]) -> Iterator[Chart]:
    """Every chart in these blocks, in order."""
    for block in blocks:
        if isinstance(block, Charts):
            yield from block.charts
        elif isinstance(block, Drawer):
            yield from charts_of(block.blocks)
        elif isinstance(block, Verdict) and block.chart is not None:
            yield block.chart


def markup(blocks: Sequence[Block], inside: Inside) -> str:
    """The blocks below each other."""
    return "\n".join(_MARKUP[type(block)](block, inside) for block in blocks)


def _heading(block: Heading, inside: Inside) -> str:
    return f"<h3>{escaped(block.text)}</h3>"


def _words(block: Paragraph, inside: Inside) -> str:
    return f'<p class="{block.kind}">{escaped(block.text)}</p>'


def _facts(block: Facts, inside: Inside) -> str:
    return f'<dl class="facts">{_pairs(block.rows)}</dl>'


def _pairs(rows: LabelledTexts, share: str = "") -> str:
    """share: a bar that follows the likely cause."""
    return "".join(
        f"<dt>{escaped(name)}</dt><dd{_bold(name)}>{escaped(text)}{share if name == 'likely cause' else ''}</dd>"
        for name, text in rows
    )


def _bold(name: str) -> str:
    return ' class="do"' if name.startswith(("do", "known-good")) else ""


def _table(block: Table, inside: Inside) -> str:
    kinds = ["" if at == 0 or not block.numbers else ' class="number"' for at in range(len(block.head))]
    head = "".join(f"<th{kind}>{escaped(name)}</th>" for kind, name in zip(kinds, block.head, strict=True))
    rows = "".join(
        f"<tr>{''.join(f'<td{kind}>{_cell(text)}</td>' for kind, text in zip(kinds, row, strict=True))}</tr>"
        for row in block.rows
    )
    label = escaped(block.title)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{label}">{table}</div>'


def _cell(text: str) -> str:
    """A grade in its colour, any other text as it is."""
    severity = next((word for word, mark in MARKS.items() if text == f"{mark} {word}"), None)
    return escaped(text) if severity is None else f'<span class="word {severity}">{escaped(text)}</span>'


def _charts(block: Charts, inside: Inside) -> str:
    return (
        f'<div class="plots">{"".join(_chart(chart, inside) for chart in block.charts)}</div>' if block.charts else ""
    )


def _chart(chart: Chart, inside: Inside) -> str:
    kind = "figure wide" if chart.wide else "figure"
    height = inside.drawn[chart.name].height
    return (
        f'<div class="{kind}" data-figure="{escaped(chart.name)}" style="min-height:{height}px" role="figure"'
        f' aria-label="{escaped(chart.label)}"></div>'
    )


def _markup(block: Markup, inside: Inside) -> str:
    """One of both is shown; tinted text has rules for both themes below one class."""
    if block.light == block.dark:
        return f'<div class="rs-light">{block.light}</div>'
    return f'<div class="in-light">{block.light}</div><div class="in-dark">{block.dark}</div>'


def _tokens(block: TintedSequence, inside: Inside) -> str:
    lines = "<br>".join(escaped(line) for line in (block.prompt or "").split("\n"))
    prompt = f'<details><summary>prompt</summary><div class="prompt">{lines}</div></details>' if block.prompt else ""
    more = f'<p class="muted small">{escaped(block.more)}</p>' if block.more else ""
    title = f'<h3><code>{escaped(block.title)}</code></h3><p class="muted small">{escaped(block.facts)}</p>'
    return f'<div class="sequence">{title}{prompt}{block.html}{more}</div>'


def _code(block: Code, inside: Inside) -> str:
    return f'<pre tabindex="0">{"<br>".join(escaped(line) for line in block.lines)}</pre>'


def _links(block: Links, inside: Inside) -> str:
    items = "".join(f"<li>{_link(*row, inside)}</li>" for row in block.rows)
    return f'<ul class="statements">{items}</ul>'


def _link(name: str, words: str, page: str, tip: str, inside: Inside) -> str:
    text = f"<b>{escaped(name)}</b> {escaped(words)}"
    if page not in inside.paths:
        return f'<span title="{escaped(tip)}">{text}</span>'
    return f'<a href="{escaped(inside.address(page))}" title="{escaped(tip)}">{text} ›</a>'


def _verdict(block: Verdict, inside: Inside) -> str:
    mark = f'<span class="word {block.severity}">{MARKS[block.severity]} {escaped(block.severity)}</span>'
    bar = f"M0 .5H{100 * (block.share or 0):.4g}"
    share = "" if block.share is None else f'{SHARE}<path class="all" d="M0 .5H100"/><path d="{bar}"/></svg>'
    proof = "" if block.chart is None else f'<div class="evidence">{_chart(block.chart, inside)}</div>'
    return (
        f'<section class="verdict {block.severity}" aria-label="verdict"><h3>{mark} {escaped(block.title)}</h3>'
        f'<div class="head"><dl>{_pairs(block.facts, share)}</dl>{proof}</div></section>'
    )


def _drawer(block: Drawer, inside: Inside) -> str:
    return f"<details><summary>{escaped(block.title)}</summary>{markup(block.blocks, inside)}</details>"


_MARKUP: dict[type[Any], Callable[[Any, Inside], str]] = {
    Heading: _heading, Paragraph: _words, Facts: _facts, Table: _table, Charts: _charts, Markup: _markup, TintedSequence: _tokens,
    Code: _code, Links: _links, Verdict: _verdict, Drawer: _drawer,
}  # fmt: skip
"""How a block looks. Any: each function takes the blocks of its own type."""
