"""Blocks as HTML. Every text is scrubbed and escaped here, once; only figures and `figures/html` give markup."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import polars as pl

from ..blocks import (
    Action,
    Actions,
    At,
    Beside,
    Block,
    Box,
    Cards,
    Chart,
    Charts,
    Code,
    Column,
    Drawer,
    Facts,
    Heading,
    Json,
    Link,
    Links,
    Markup,
    Numbers,
    Paragraph,
    Part,
    Table,
    TintedSequence,
    Verdict,
    Waiting,
    parts_of,
)
from ..figures.html.fact_cards import fact_cards
from ..presentation.digits import count
from ..presentation.escape import html as escaped
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.privacy import scrubbed_settings, scrubbed_text
from ..presentation.sparkline import HEIGHT, WIDTH, svg_path
from ..presentation.theme import DARK, LIGHT, MARKS
from ..presentation.value_text import cell_texts
from .drawings import Drawing, picture

ROWS = 200
"""Most rows of a table."""
SHARE = '<svg class="share" viewBox="0 0 100 1" preserveAspectRatio="none" aria-hidden="true">'


@dataclass(frozen=True)
class Inside:
    """The file that the blocks stand in."""

    figure: Callable[[Chart], str]
    """A chart as one element."""
    address: Callable[[str], str]
    """Path of a page -> the address of a link to it."""
    paths: frozenset[str]
    """The pages that there are: a link to another one is text."""
    runs: Mapping[str, str] = field(default_factory=dict)
    """Name of a run -> the address of its pages."""


def whole(blocks: Iterable[Block]) -> tuple[Block, ...]:
    """The blocks, those of their drawers and parts made."""
    return tuple(map(_made, blocks))


def _made(block: Block) -> Block:
    if isinstance(block, Beside):
        return replace(block, columns=tuple(map(whole, block.columns)))
    if not isinstance(block, Drawer | Part):
        return block
    inside = whole(block.blocks())
    return replace(block, blocks=lambda: inside)


def charts_of(blocks: Iterable[Block]) -> Iterator[Chart]:
    """Every chart in these blocks, in order."""
    for block in blocks:
        if isinstance(block, Chart):
            yield block
        elif isinstance(block, Charts):
            yield from block.charts
        elif isinstance(block, Beside):
            for column in block.columns:
                yield from charts_of(column)
        elif isinstance(block, Box | At):
            yield from charts_of(block.blocks)
        elif isinstance(block, Drawer | Part):
            yield from charts_of(block.blocks())
        elif isinstance(block, Verdict) and block.chart is not None:
            yield block.chart


def markup(blocks: Iterable[Block], inside: Inside) -> str:
    """The blocks below each other."""
    return "\n".join(_MARKUP[type(block)](block, inside) for block in blocks)


def _heading(block: Heading, inside: Inside) -> str:
    return f"<h3>{_text(block.text)}</h3>"


def _text(text: str) -> str:
    return escaped(scrubbed_text(text))


_TONES = {
    "small": "muted small", "answer": "lead", "info": "absent", "warning": "lead", "good": "muted", "wrong": "lead",
}  # fmt: skip
"""The classes of a paragraph's tone, where they have other names."""


def _words(block: Paragraph, inside: Inside) -> str:
    head = f"<b>{_text(block.head)}</b> " if block.head else ""
    tip = f' title="{escaped(block.help)}"' if block.help else ""
    return f'<p class="{_TONES.get(block.tone, block.tone)}"{tip}>{head}{_with_code(scrubbed_text(block.text))}</p>'


def _with_code(text: str) -> str:
    return "".join(f"<code>{escaped(part)}</code>" if is_code else escaped(part) for part, is_code in parts_of(text))


def _facts(block: Facts, inside: Inside) -> str:
    return f'<dl class="facts">{_pairs(block.rows)}</dl>'


def _cards(block: Cards, inside: Inside) -> str:
    return _markup(Markup(lambda theme: fact_cards(block.rows, narrowest=block.narrowest, theme=theme)), inside)


def _pairs(rows: LabelledTexts, share: str = "") -> str:
    """share: a bar that follows the likely cause."""
    return "".join(
        f"<dt>{_text(name)}</dt><dd{_bold(name)}>{_text(text)}{share if name == 'likely cause' else ''}</dd>"
        for name, text in rows
    )


def _bold(name: str) -> str:
    return ' class="do"' if name.startswith(("do", "pinned run")) else ""


def _table(block: Table, inside: Inside) -> str:
    frame = block.frame
    if frame.is_empty() and block.none:
        return _words(Paragraph(block.none, "absent"), inside)
    columns = [*block.shown.head(ROWS).iter_columns()]
    cut = f'<p class="muted small">the first {ROWS} of {count(len(frame), "row")}</p>' if len(frame) > ROWS else ""
    titles = [block.title_of(own.name) for own in columns]
    kinds = [' class="number"' if is_number else "" for is_number in numbers_of(block, columns)]
    head = "".join(f"<th{kind}>{escaped(name)}</th>" for kind, name in zip(kinds, titles, strict=True))
    cells = [[*_cells(own, block.columns.get(own.name, Column()))] for own in columns]
    if inside.runs and block.leads is not None:
        led = (inside.runs[block.leads(row).choices["run"]] for row in range(len(columns[0])))
        cells[0] = [f'<a href="{escaped(address)}">{cell}</a>' for address, cell in zip(led, cells[0], strict=True)]
        kinds = [f'{kind} data-of="{escaped(title)}"' for kind, title in zip(kinds, titles, strict=True)]
    rows = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for kind, cell in zip(kinds, row, strict=True))}</tr>"
        for row in zip(*cells, strict=True)
    )
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(block.title)}">{table}</div>{cut}'


def numbers_of(block: Table, columns: Sequence[pl.Series]) -> list[bool]:
    """True for each column that stands on the right, as numbers do."""
    return [
        (own.dtype.is_numeric() and own.name != "step")
        or block.columns.get(own.name, Column()).is_number
        or (block.is_numbers and at > 0)
        for at, own in enumerate(columns)
    ]


def _cells(own: pl.Series, column: Column) -> Iterator[str]:
    """The cells of a column. Lists of numbers are lines; a name with a tip has it behind."""
    if own.dtype == pl.List:
        yield from ("" if values is None else _line(values.to_list(), column.ends) for values in own)
        return
    for text in texts_of(own):
        name, tip = escaped(text).replace("_", "_<wbr>"), escaped(column.tips.get(text, ""))
        yield f'<code title="{tip}">{name}</code>' if column.tips else _cell(text)


def _line(values: Sequence[float | None], ends: tuple[float, float] | None) -> str:
    """The line of a cell, small."""
    line, box = svg_path(values, ends=ends), f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="spark" {box} aria-hidden="true"><path d="{line}"/></svg>' if line else ""


def texts_of(own: pl.Series) -> list[str]:
    """The cells of a column as texts, scrubbed."""
    texts = cell_texts(own)
    return texts if own.dtype.is_numeric() else [*map(scrubbed_text, texts)]


def _cell(text: str) -> str:
    """A grade in its colour, any other text as it is."""
    severity = next((word for word, mark in MARKS.items() if text == f"{mark} {word}"), None)
    return escaped(text) if severity is None else f'<span class="word {severity}">{escaped(text)}</span>'


def _charts(block: Charts, inside: Inside) -> str:
    charts = "".join(_figure(chart, inside) for chart in block.charts)
    return f'<div class="plots">{charts}</div>' if charts else ""


def _chart(block: Chart, inside: Inside) -> str:
    return _charts(Charts((block,)), inside)


def _figure(chart: Chart, inside: Inside) -> str:
    return inside.figure(chart)


def live_figure(chart: Chart, drawn: Drawing) -> str:
    """The place of a chart that plotly.js draws. drawn: the chart, by a name that no other one of the file has."""
    return (
        f'<div class="{_kind(chart)}" data-figure="{escaped(drawn.name)}" style="min-height:{drawn.height}px" role="figure"'
        f' aria-label="{escaped(chart.label)}"></div>'
    )


def still_figure(chart: Chart) -> str:
    """A chart without a script."""
    return f'<div class="{_kind(chart)}" data-figure="{escaped(chart.name)}">{picture(chart)}</div>'


def _kind(chart: Chart) -> str:
    return "figure wide" if chart.wide else "figure"


def _beside(block: Beside, inside: Inside) -> str:
    return f'<div class="beside">{"".join(f"<div>{markup(column, inside)}</div>" for column in block.columns)}</div>'


def _at(block: At, inside: Inside) -> str:
    return markup(block.blocks, inside)


def _action(block: Action, inside: Inside) -> str:
    """A link to a page of this file. Nothing else: a file cannot act."""
    if not isinstance(block.do, Link) or block.do.page not in inside.paths or block.do.choices:
        return ""
    return f'<a href="{escaped(inside.address(block.do.page))}">{escaped(block.words)} ›</a>'


def _actions(block: Actions, inside: Inside) -> str:
    made = [_action(action, inside) for action in block.actions]
    head = f'<p class="muted small">{escaped(block.before)}</p>' if block.before else ""
    if block.is_list:
        items = (link or escaped(action.words) for link, action in zip(made, block.actions, strict=True))
        return f'{head}<ul class="statements list">{"".join(f"<li>{item}</li>" for item in items)}</ul>'
    return f"{head}{' '.join(made)}" if any(made) else ""


def _box(block: Box, inside: Inside) -> str:
    return f'<div class="box">{markup(block.blocks, inside)}</div>'


def _part(block: Part, inside: Inside) -> str:
    return markup(block.blocks(), inside)


def _markup(block: Markup, inside: Inside) -> str:
    """Both themes, of which one is shown; HTML that is the same in both has the colours of the document."""
    light, dark = block.draw(theme=LIGHT), block.draw(theme=DARK)
    return light if light == dark else f'<div class="in-light">{light}</div><div class="in-dark">{dark}</div>'


def _tokens(block: TintedSequence, inside: Inside) -> str:
    lines = "<br>".join(escaped(line) for line in (block.prompt or "").split("\n"))
    prompt = f'<details><summary>prompt</summary><div class="prompt">{lines}</div></details>' if block.prompt else ""
    more = f'<p class="muted small">{escaped(block.more)}</p>' if block.more else ""
    title = f'<h3><code>{escaped(block.title)}</code></h3><p class="muted small">{escaped(block.facts)}</p>'
    return f'<div class="sequence">{title}{prompt}{block.html}{more}</div>'


def _code(block: Code, inside: Inside) -> str:
    return f'<pre tabindex="0">{"<br>".join(escaped(line) for line in block.lines)}</pre>'


def _json(block: Json, inside: Inside) -> str:
    text = json.dumps(scrubbed_settings(dict(block.value)), indent=2, ensure_ascii=False, default=str)
    return _drawer(Drawer(block.title, lambda: (Code(text.split("\n")),)), inside)


def _links(block: Links, inside: Inside) -> str:
    items = "".join(f"<li>{_link(*row, inside)}</li>" for row in block.rows)
    return f'<ul class="statements">{items}</ul>'


def _link(name: str, words: str, link: Link, tip: str, inside: Inside) -> str:
    text = f"<b>{escaped(name)}</b> {escaped(words)}"
    if link.page not in inside.paths:
        return f'<span title="{escaped(tip)}">{text}</span>'
    return f'<a href="{escaped(inside.address(link.page))}" title="{escaped(tip)}">{text} ›</a>'


def _verdict(block: Verdict, inside: Inside) -> str:
    mark = f'<span class="word {block.severity}">{MARKS[block.severity]} {escaped(block.severity)}</span>'
    bar = f"M0 .5H{100 * (block.share or 0):.4g}"
    share = "" if block.share is None else f'{SHARE}<path class="all" d="M0 .5H100"/><path d="{bar}"/></svg>'
    proof = "" if block.chart is None else f'<div class="evidence">{_figure(block.chart, inside)}</div>'
    return (
        f'<section class="verdict {block.severity}" aria-label="verdict"><h3>{mark} {_text(block.title)}</h3>'
        f'<div class="head"><dl>{_pairs(block.facts, share)}</dl>{proof}</div></section>'
    )


def _left_out(block: Waiting | Numbers, inside: Inside) -> str:
    return ""


def _drawer(block: Drawer, inside: Inside) -> str:
    kind = ' class="print"' if block.is_printed else ""
    return f"<details{kind}><summary>{_text(block.title)}</summary>{markup(block.blocks(), inside)}</details>"


_MARKUP: dict[type[Any], Callable[[Any, Inside], str]] = {
    Heading: _heading, Paragraph: _words, Facts: _facts, Cards: _cards, Table: _table, Chart: _chart, Charts: _charts,
    Beside: _beside, At: _at, Action: _action, Actions: _actions, Box: _box,
    Part: _part, Waiting: _left_out, Numbers: _left_out, Markup: _markup, TintedSequence: _tokens, Code: _code, Json: _json,
    Links: _links, Verdict: _verdict, Drawer: _drawer,
}  # fmt: skip
"""How a block looks. Any: each function takes the blocks of its own type."""
