"""Blocks as elements of Streamlit."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any

import streamlit as st

from ..blocks import (
    Action,
    At,
    Beside,
    Block,
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
    Paragraph,
    Table,
    TintedSequence,
    Verdict,
)
from ..browser.chart import points
from ..browser.code import code
from ..browser.listener import is_narrow
from ..figures.html.fact_cards import fact_cards, fact_list
from ..pages.scope import Scope
from ..presentation.escape import streamlit_label as label
from ..presentation.theme import MARKS
from .panels.charts import appearance, draw, number_column, table
from .panels.layout import cells, columns
from .panels.links import go_to
from .panels.widgets import WIDGETS, place_of

LONGEST = 1200
"""Characters of a paragraph that are shown."""
TIME = st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", timezone="UTC", help="UTC")


def drawn(page: Callable[[Scope], Iterable[Block]], scope: Scope) -> None:
    """Draws a page, block by block as it yields them."""
    _draw(page(replace(scope, face=WIDGETS)), scope, page.__name__)


def _draw(blocks: Iterable[Block], scope: Scope, key: str) -> None:
    """key: the beginning of the keys of elements without a name."""
    for place, block in enumerate(blocks):
        _DRAWN[type(block)](block, scope, f"{key}_{place}")


def _heading(block: Heading, scope: Scope, key: str) -> None:
    st.subheader(label(block.text), anchor=False)


def _paragraph(block: Paragraph, scope: Scope, key: str) -> None:
    words = label(block.text, LONGEST)
    if block.head:
        words = f"**{label(block.head, LONGEST)}** {words}"
    _TONES[block.tone](words)


_TONES: dict[str, Callable[[str], object]] = {
    "": st.markdown,
    "lead": lambda words: st.markdown(f"**{words}**"),
    "answer": lambda words: st.markdown(f"#### {words}"),
    "muted": st.caption,
    "small": st.caption,
    "absent": lambda words: st.caption(f":material/info: {words}"),
    "good": lambda words: st.caption(f":material/check: {words}"),
    "info": st.info,
    "warning": partial(st.warning, icon=":material/warning:"),
}


def _facts(block: Facts, scope: Scope, key: str) -> None:
    st.html(fact_list(block.rows, appearance()))


def _cards(block: Cards, scope: Scope, key: str) -> None:
    st.html(fact_cards(block.rows, narrowest=block.narrowest, theme=appearance()))


def _table(block: Table, scope: Scope, key: str) -> None:
    frame = block.frame
    if frame.is_empty() and block.none:
        st.caption(label(block.none, LONGEST))
        return
    named = {name: _column(name, column) for name, column in block.columns.items()}
    times = dict.fromkeys((name for name, kind in frame.schema.items() if kind.is_temporal()), TIME)
    order = frame.columns
    if is_narrow():
        first = [name for name in (order[0], *block.first) if name in order] if block.first else []
        order = [name for name in dict.fromkeys((*first, *order)) if name not in block.wide_only]
    options: dict[str, Any] = {"column_config": times | named, "column_order": order}
    table(frame, block.title, height=block.tallest or "content", **options)


def _column(name: str, column: Column) -> Any:
    """Any: the settings of a column of st.dataframe."""
    if column.format == "localized":
        return st.column_config.NumberColumn(column.title or None, format="localized", help=column.help or None)
    if column.format:
        return number_column(column.title or name, column.help or name, column.format)
    return st.column_config.Column(column.title or None, help=column.help or None, width=column.width)


def _chart(block: Chart, scope: Scope, key: str) -> None:
    figure = scope.view.figure(block.make, *block.of, appearance().name)
    clicked = None if block.leads is None else partial(_follow, block)
    draw(figure, block.name, block.label, numbers=block.numbers, on_click=clicked)


def _follow(block: Chart) -> None:
    """Goes where a click on a point of the chart leads."""
    for point in points(block.name):
        if block.leads is not None and (link := block.leads(point)) is not None:
            _go(link)
            return


def _go(link: Link) -> None:
    """Opens the page, or makes these choices on this one."""
    if link.page:
        go_to(link.page, **link.choices)
    else:
        st.session_state.update(link.choices)


def _charts(block: Charts, scope: Scope, key: str) -> None:
    places = cells(len(block.charts), block.charts[0].name if block.charts else "")
    for place, chart in zip(places, block.charts, strict=True):
        with place:
            _chart(chart, scope, key)


def _beside(block: Beside, scope: Scope, key: str) -> None:
    for place, blocks in zip(columns(len(block.columns), block.name), block.columns, strict=True):
        with place:
            _draw(blocks, scope, key)


def _at(block: At, scope: Scope, key: str) -> None:
    with place_of(block.name):
        _draw(block.blocks, scope, key)


def _action(block: Action, scope: Scope, key: str) -> None:
    st.button(label(block.words), key=block.name, on_click=block.do)


def _markup(block: Markup, scope: Scope, key: str) -> None:
    st.html(block.draw(theme=appearance()))


def _tokens(block: TintedSequence, scope: Scope, key: str) -> None:
    st.markdown(f"**{label(block.title)}** {label(block.facts)}")
    if block.prompt:
        with st.expander("prompt", key=f"{key}_prompt"):
            st.text(block.prompt)
    st.html(block.html)
    if block.more:
        st.caption(label(block.more))


def _code(block: Code, scope: Scope, key: str) -> None:
    code("\n".join(block.lines), key, language=block.language)


def _json(block: Json, scope: Scope, key: str) -> None:
    st.json(block.value, expanded=False)


def _links(block: Links, scope: Scope, key: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=key):
        for name, words, page, tip in block.rows:
            text = f"**{label(name)}** {label(words, 300)} ›"
            st.button(
                text, key=f"{key}_{name}", type="tertiary", help=label(tip, LONGEST), on_click=go_to, args=(page,)
            )


def _verdict(block: Verdict, scope: Scope, key: str) -> None:
    st.markdown(f"#### {MARKS[block.severity]} {block.severity}: {label(block.title, LONGEST)}")
    _facts(Facts(block.facts), scope, key)
    if block.chart is not None:
        _chart(block.chart, scope, key)


def _drawer(block: Drawer, scope: Scope, key: str) -> None:
    drawer = st.expander(label(block.title), key=key, on_change="rerun")
    if drawer.open:
        with drawer:
            _draw(block.blocks(), scope, key)


_DRAWN: dict[type[Any], Callable[[Any, Scope, str], None]] = {
    Heading: _heading, Paragraph: _paragraph, Facts: _facts, Cards: _cards, Table: _table, Chart: _chart, Charts: _charts,
    Beside: _beside, At: _at, Action: _action, Markup: _markup, TintedSequence: _tokens, Code: _code, Json: _json,
    Links: _links, Verdict: _verdict, Drawer: _drawer,
}  # fmt: skip
"""How a block is drawn. Any: each function takes the blocks of its own type."""
