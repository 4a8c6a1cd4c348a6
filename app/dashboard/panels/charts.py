"""Charts and tables on a page: draw puts a figure on the page, with its numbers behind it; table shows a frame."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.rows.text_columns import changed

from ...browser.chart import chart
from ...browser.library import CLICKED, CONFIG
from ...browser.listener import hide_numbers, is_narrow
from ...figures.drawing.along import with_log_x
from ...presentation.digits import count
from ...presentation.escape import visible
from ...presentation.run_names import told_apart
from ...presentation.theme import DARK, LIGHT, NARROW, Theme, ThemeName
from ..model.export import PageContents, csv_of

IMAGES = ("svg", "png")
CELL = 24
"""Characters of a name that is cut to leave room for the numbers beside it."""
ABSENT = "–"
"""A cell of a table without a value."""
LOG_X = "_log_x"
"""True while the page draws its lines over a logarithmic x axis."""
_LAST: list[ThemeName] = [LIGHT.name]
WIDEST_NUMBER, SHORT_TITLE = 96, 10
"""Pixels of a column that holds -0.0001234 or 1.234e-05, and characters of a title that takes less room."""


def page_contents() -> PageContents:
    """The contents of this session's page, as far as it is drawn."""
    contents = st.session_state.get("_shown")
    return contents if isinstance(contents, PageContents) else PageContents()


def begin_page(run: str, page: str) -> PageContents:
    """Notes the page that is about to be drawn. The returned contents collect all that is drawn from here on."""
    st.session_state["_shown"] = shown = PageContents(run, page)
    return shown


def appearance() -> Theme:
    """The theme of the reader's browser; light and wide until the browser has reported it."""
    wide = DARK if st.context.theme.type == "dark" else LIGHT
    theme = NARROW[wide.name] if is_narrow() else wide
    _LAST[:] = [theme.name]
    return theme


def last_appearance() -> ThemeName:
    """The theme that any session showed last: the best guess for a page that nobody has opened yet."""
    return _LAST[0]


def draw(
    figure: go.Figure,
    key: str,
    alt: str,
    *,
    numbers: Callable[[], pl.DataFrame] | None = None,
    on_click: Callable[[], None] | None = None,
) -> None:
    """Draws the figure. Sessions may share it, so it is not changed.

    numbers: makes the table behind the figure when the reader asks for it. on_click: called after a click on a point.
    """
    shown = page_contents()
    if st.session_state.get(LOG_X):
        figure = with_log_x(figure)
    shown.charts[key] = (alt, figure)
    config = (CONFIG if on_click is None else CLICKED) | {"toImageButtonOptions": _image(shown.file(key))}
    if numbers is not None:
        shown.tables[key] = numbers
    chart(figure, key, alt, config, on_click=on_click, has_numbers=numbers is not None)


def _image(name: str) -> dict[str, Any]:
    """The settings of a chart's camera button: the chosen format, and a file name for run, page and chart."""
    chosen = st.session_state.get("image")
    return {"format": chosen if chosen in IMAGES else IMAGES[0], "filename": name, "scale": 2}


def show_numbers(key: str) -> None:
    """Shows the table behind the chart of this key, without a redraw of the page."""
    shown = page_contents()
    if key in shown.charts and key in shown.tables:
        _numbers(key, shown)
    else:
        hide_numbers()


@st.dialog("Numbers", width="large", icon=":material/table_chart:", on_dismiss=hide_numbers)
def _numbers(key: str, shown: PageContents) -> None:
    alt, _ = shown.charts[key]
    frame = shown.tables[key]()
    _table(frame, alt)
    _download(frame, key, shown)


def _download(frame: pl.DataFrame, key: str, shown: PageContents) -> None:
    st.download_button(
        f"CSV, {count(len(frame), 'row')}",
        partial(csv_of, frame),
        shown.file(key, ".csv"),
        "text/csv",
        key=f"{key}_csv",
        on_click="ignore",
        icon=":material/download:",
    )


def table(frame: pl.DataFrame, name: str, *, cut: Sequence[str] = (), **options: Any) -> Any:
    """Draws the frame as a table, with invisible characters made visible.

    cut: columns of names that are shown as short as they can be told apart; the page's downloads have them whole. options: of
    st.dataframe.
    """
    page_contents().tables[name] = lambda: frame
    return _table(
        frame.with_columns(_distinct(frame[column]) for column in cut if column in frame.columns), name, **options
    )


def number_column(title: str, name: str, format: str | None = None, width: int | None = None) -> Any:
    """A column of numbers under a title, with its name as help. Below a short title a long number would lose its first digits."""
    if width is None and format is not None and len(title) < SHORT_TITLE:
        width = WIDEST_NUMBER
    return st.column_config.NumberColumn(title, format=format, help=name, width=width)


def _distinct(names: pl.Series) -> pl.Series:
    known = names.drop_nulls().unique(maintain_order=True).to_list()
    return names.replace_strict(known, told_apart(known, CELL), return_dtype=pl.String) if known else names


def _fill(drawer: Any, numbers: Callable[[], pl.DataFrame], name: str, key: str, shown: PageContents) -> None:
    if drawer.open:
        with drawer:
            frame = numbers()
            _table(frame, name)
            _download(frame, key, shown)


def _table(frame: pl.DataFrame, name: str, **options: Any) -> Any:
    text = [column for column, kind in frame.schema.items() if kind == pl.String]
    return st.dataframe(changed(frame, visible, *text), hide_index=True, alt=name, **{"placeholder": ABSENT, **options})


def numbers_behind(frame: Callable[[], pl.DataFrame], key: str, title: str = "numbers behind this page") -> None:
    """A closed drawer with the frame, which is made when the drawer is opened."""
    shown = page_contents()
    shown.tables[key] = frame
    drawer = st.expander(title, key=key, on_change="rerun")
    _fill(drawer, frame, title, key, shown)
