"""Blocks as elements of Streamlit."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import polars as pl
import streamlit as st

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
    Download,
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
from ..browser.chart import points
from ..browser.code import code
from ..browser.listener import is_narrow, listen_to_tokens
from ..figures.html.fact_cards import fact_cards, fact_list
from ..pages.scope import Scope
from ..presentation.escape import streamlit_label as label
from ..presentation.escape import visible
from .model.live import selectable
from .model.served_folder import served_folder
from .panels.calm_clicks import calmly, say_failed
from .panels.charts import appearance, draw, number_column, numbers_behind, page_contents, table
from .panels.chosen_rows import CELLS, clicked_row, in_place, tick_key
from .panels.job_progress import job_at_work
from .panels.layout import IN_HEADER, cells, go_to
from .panels.widgets import WIDGETS, kept_at, picks_at, place_of

EVERY = 1.0
"""Seconds between two looks for something that is being made."""
LONGEST = 1200
"""Characters of a paragraph that are shown."""
READABLE = 1240
"""The widest line of a sentence with words behind it, in pixels: else their mark stands far from it."""
TIME = st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm:ss", timezone="UTC", help="UTC")


def drawn(page: Callable[[Scope], Iterable[Block]], scope: Scope) -> None:
    """Draws a page, block by block as it yields them."""
    scope = replace(scope, face=WIDGETS, runs=served_folder())
    _draw(page(scope), scope, getattr(page, "__name__", "page"))


def _draw(blocks: Iterable[Block], scope: Scope, key: str) -> None:
    """key: the beginning of the keys of elements without a name."""
    say_failed()
    for place, block in enumerate(blocks):
        _DRAWN[type(block)](block, scope, f"{key}_{place}")


def _heading(block: Heading, scope: Scope, key: str) -> None:
    st.subheader(label(block.text), anchor=False)


def _paragraph(block: Paragraph, scope: Scope, key: str) -> None:
    words = "".join(f"`{visible(part)}`" if is_code else label(part, LONGEST) for part, is_code in parts_of(block.text))
    if block.head:
        words = f"**{label(block.head, LONGEST)}** {words}"
    if block.help:
        draw = st.caption if block.tone == "muted" else st.markdown
        draw(words, help=label(block.help, LONGEST), width=READABLE)
    else:
        _TONES[block.tone](words)


_TONES: dict[str, Callable[[str], object]] = {
    "": st.markdown,
    "lead": lambda words: st.markdown(f"**{words}**"),
    "answer": lambda words: st.markdown(f"#### {words}"),
    "muted": st.caption,
    "small": st.caption,
    "absent": lambda words: st.caption(f":material/info: {words}"),
    "good": lambda words: st.caption(f":material/check: {words}"),
    "wrong": lambda words: st.caption(f":material/error: {words}"),
    "info": st.info,
    "warning": partial(st.warning, icon=":material/warning:"),
}


def _facts(block: Facts, scope: Scope, key: str) -> None:
    st.html(fact_list(block.rows, appearance()))


def _cards(block: Cards, scope: Scope, key: str) -> None:
    st.html(fact_cards(block.rows, narrowest=block.narrowest, theme=appearance()))


def _table(block: Table, scope: Scope, key: str) -> None:
    if block.frame.is_empty() and block.none:
        st.caption(label(block.none, LONGEST))
        return
    if block.has_ticks:
        block = in_place(block)
    frame = block.frame
    for name, column in block.columns.items():
        if column.words:
            frame = frame.with_columns(pl.concat_list(name))
        elif column.shorter and is_narrow():
            frame = frame.with_columns(pl.col(name).str.replace_many(column.shorter))
    named = {name: _column(name, column) for name, column in block.columns.items()}
    times = dict.fromkeys((name for name, kind in frame.schema.items() if kind.is_temporal()), TIME)
    order = [*(block.only or frame.columns)]
    if is_narrow():
        first = [name for name in (order[0], *block.first) if name in order] if block.first else []
        order = [name for name in dict.fromkeys((*first, *order)) if name not in block.wide_only]
    options: dict[str, Any] = {"column_config": times | named, "column_order": order}
    if block.leads is not None:
        key, mode = (tick_key(block.picks), ["multi-row", CELLS]) if block.has_ticks else (block.picks, CELLS)
        options |= {"key": key, "on_select": partial(_follow_row, block, key), "selection_mode": mode}
    elif block.picks:
        options |= {"key": selectable(block.picks, block.rows), "on_select": "rerun", "selection_mode": CELLS}
    drawn = table(frame, block.title, cut=block.cut, height=block.tallest or "content", **options)
    if block.picks:
        st.session_state[picks_at(block.picks)] = drawn


@calmly
def _follow_row(block: Table, key: str) -> None:
    row = clicked_row(st.session_state[key], len(block.frame))
    if row is not None and block.leads is not None:
        link = block.leads(row)
        if not link.page:  # else a second click on the cell would end its choice, and lead nowhere
            st.session_state[key] = {"selection": {"rows": [], "columns": [], "cells": []}}
        _go(link)


def _column(name: str, column: Column) -> Any:
    """Any: the settings of a column of st.dataframe."""
    width = column.narrow if column.narrow is not None and is_narrow() else column.width
    if column.ends is not None:
        low, high = column.ends
        return st.column_config.LineChartColumn(column.title, y_min=low, y_max=high, width=width, help=column.help)
    if column.words:
        words, colours = [*column.words], [*column.words.values()]
        return st.column_config.MultiselectColumn(options=words, color=colours, width=width, help=column.help or None)
    if column.format == "localized":
        return st.column_config.NumberColumn(column.title or None, format="localized", help=column.help or None)
    if column.format:
        return number_column(column.title or name, column.help or name, column.format, width)
    return st.column_config.Column(column.title or None, help=column.help or None, width=width)


def _chart(block: Chart, scope: Scope, key: str) -> None:
    figure = scope.view.figure(block.make, *block.of, appearance().name)
    clicked = None if block.leads is None else partial(_follow, block)
    alt = f"{block.label}; {block.hint}" if block.hint and block.leads else block.label
    draw(figure, block.name, alt, numbers=block.numbers, on_click=clicked)


@calmly
def _follow(block: Chart) -> None:
    """Goes where a click on a point of the chart leads."""
    for point in points(block.name):
        if block.leads is not None and (link := block.leads(point)) is not None:
            _go(link)
            return


def _go(link: Link) -> None:
    """Opens the page, or makes these choices on this one."""
    state, url = st.session_state, st.query_params
    bound = {name for name in link.choices if name in state and (not link.page or name in url)}
    # only the URL takes a list
    of_header = {name for name in IN_HEADER if not isinstance(link.choices.get(name), list)}
    here = bound | (set(link.choices) & of_header if link.page else set())
    st.session_state.update({name: link.choices[name] for name in here})
    if not link.page:
        url.update({name: value for name, value in link.choices.items() if kept_at(name) in state})
    if link.page:
        go_to(link.page, **{name: value for name, value in link.choices.items() if name not in here})


def _charts(block: Charts, scope: Scope, key: str) -> None:
    places = cells(len(block.charts), block.charts[0].name if block.charts else "")
    for place, chart in zip(places, block.charts, strict=True):
        with place:
            _chart(chart, scope, key)


def _beside(block: Beside, scope: Scope, key: str) -> None:
    for place, blocks in zip(cells(len(block.columns), block.name, block.narrowest), block.columns, strict=True):
        with place:
            _draw(blocks, scope, key)


def _at(block: At, scope: Scope, key: str) -> None:
    with place_of(block.name):
        _draw(block.blocks, scope, key)


def _action(block: Action, scope: Scope, key: str) -> None:
    do = block.do
    icon, about = f":material/{block.icon}:" if block.icon else None, label(block.help, LONGEST) or None
    if isinstance(do, Download):
        st.download_button(
            label(block.words, 300), do.text, do.name, do.media_type, key=block.name, on_click="ignore", icon=icon, help=about
        )  # fmt: skip
        return
    clicked = st.button(
        label(block.words, 300), key=block.name, type="tertiary" if block.is_plain else "secondary", help=about,
        on_click=_act, args=(do,), shortcut=block.shortcut or None, disabled=block.is_off, icon=icon,
    )  # fmt: skip
    if clicked and block.redraws_page:
        st.rerun()


@calmly
def _act(do: Callable[[], Link | None] | Link) -> None:
    if (link := do if isinstance(do, Link) else do()) is not None:
        _go(link)


def _actions(block: Actions, scope: Scope, key: str) -> None:
    is_column = block.is_list and not block.in_row
    gap: Literal["small"] | None = None if is_column else "small"
    with st.container(horizontal=not is_column, vertical_alignment="center", gap=gap, key=block.name):
        if block.before:
            st.caption(label(block.before, LONGEST), width="content")
        for action in block.actions:
            _action(action, scope, key)
        if block.after:
            st.caption(label(block.after, LONGEST), width="content")


def _box(block: Box, scope: Scope, key: str) -> None:
    with st.container(border=True, key=block.name):
        _draw(block.blocks, scope, block.name)


def _part(block: Part, scope: Scope, key: str) -> None:
    with st.container(key=block.name):
        st.fragment(_draw_part, run_every=block.every, key=block.name)(block, scope)


def _draw_part(block: Part, scope: Scope) -> None:
    _draw(block.blocks(), scope, block.name)


def _waiting(block: Waiting, scope: Scope, key: str) -> None:
    if block.job:
        job_at_work(block.job, block.words, redrawn=block.redrawn)
        return
    st.fragment(_look_again, run_every=EVERY, key=block.name)(block, scope)


def _look_again(block: Waiting, scope: Scope) -> None:
    if block.blocks is not None:
        _draw(block.blocks(), scope, block.name)
        return
    if block.is_there():
        st.rerun()
    st.caption(f":material/hourglass_empty: {label(block.words, LONGEST)}")


def _markup(block: Markup, scope: Scope, key: str) -> None:
    st.html(block.draw(theme=appearance()))
    if (leads := block.leads) is not None:
        listen_to_tokens(calmly(lambda token: _go(leads(token))))
    if block.numbers is not None:
        page_contents().tables[block.title] = block.numbers.clone


def _tokens(block: TintedSequence, scope: Scope, key: str) -> None:
    st.markdown(f"**{label(block.title)}** {label(block.facts)}")
    if block.prompt:
        with st.expander("prompt", key=f"{key}_prompt"):
            st.text(block.prompt)
    st.html(block.html)
    if block.more:
        st.caption(label(block.more))


def _code(block: Code, scope: Scope, key: str) -> None:
    code("\n".join(block.lines), block.name or key, language=block.language, tallest=block.tallest)


def _json(block: Json, scope: Scope, key: str) -> None:
    st.json(block.value, expanded=False)


def _links(block: Links, scope: Scope, key: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key=block.name):
        for name, words, link, tip in block.rows:
            text, about = f"**{label(name)}** {label(words, 300)} ›", label(tip, LONGEST) or None
            st.button(text, key=f"to_{name}", type="tertiary", help=about, on_click=_go, args=(link,))


def _verdict(block: Verdict, scope: Scope, key: str) -> None:
    st.html(block.lines(theme=appearance()))


def _numbers(block: Numbers, scope: Scope, key: str) -> None:
    numbers_behind(block.frame, block.name, block.title)


def _drawer(block: Drawer, scope: Scope, key: str) -> None:
    bind: Literal["query-params"] | None = "query-params" if block.name else None
    drawer = st.expander(label(block.title), key=block.name or key, on_change="rerun", bind=bind)
    if drawer.open:
        with drawer:
            _draw(block.blocks(), scope, key)


_DRAWN: dict[type[Any], Callable[[Any, Scope, str], None]] = {
    Heading: _heading, Paragraph: _paragraph, Facts: _facts, Cards: _cards, Table: _table, Chart: _chart, Charts: _charts,
    Beside: _beside, At: _at, Action: _action, Actions: _actions, Box: _box,
    Part: _part, Waiting: _waiting, Markup: _markup, TintedSequence: _tokens, Code: _code, Json: _json,
    Links: _links, Verdict: _verdict, Numbers: _numbers, Drawer: _drawer,
}  # fmt: skip
"""How a block is drawn. Any: each function takes the blocks of its own type."""
