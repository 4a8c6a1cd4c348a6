"""How a page shows what figures make: charts with our own appearance, HTML of our own making, tables behind charts."""

from collections.abc import Callable
from typing import Any

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ..escape import visible
from ..theme import DARK, LIGHT, Theme

CONFIG: dict[str, Any] = {
    "displaylogo": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d", "pan2d"],
    "toImageButtonOptions": {"format": "svg", "scale": 2},
}


def appearance() -> Theme:
    """The theme the reader's browser shows; light until the browser has said so."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def draw(figure: go.Figure, key: str, alt: str, *, on_click: Callable[[], None] | None = None) -> None:
    """The figure as it is, without Streamlit's theme over it. on_click: called when a point was selected, see `clicked`."""
    if on_click is None:
        st.plotly_chart(figure, theme=None, key=key, config=CONFIG, alt=alt)
    else:
        config = {**CONFIG, "displayModeBar": False}
        st.plotly_chart(
            figure, theme=None, key=key, config=config, alt=alt, on_select=on_click, selection_mode="points"
        )


def clicked(key: str) -> Any:
    """The customdata of the point selected in the chart of this key; None if the selection was taken back."""
    points = st.session_state[key].selection.points
    return points[0]["customdata"] if points else None


def table(frame: pl.DataFrame, name: str, **options: Any) -> Any:
    """The frame as a table; text in it with invisible characters made visible. options: of st.dataframe."""
    text = [column for column, kind in frame.schema.items() if kind == pl.String]
    shown = frame.with_columns(pl.col(column).map_elements(visible, pl.String) for column in text)
    return st.dataframe(shown, hide_index=True, alt=name, **options)


def numbers_behind(frame: pl.DataFrame, key: str) -> None:
    """A closed drawer with the frame a page was drawn from; filled when it is opened."""
    drawer = st.expander("numbers behind this page", key=key, on_change="rerun")
    if drawer.open:
        with drawer:
            table(frame, "the numbers behind this page")
