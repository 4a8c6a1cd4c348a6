"""A chart in the browser.

Streamlit's own takes a chart away and draws another whenever its data change, each twice; this one is drawn in place, once it is
near the screen (chart.js, near.js). So the answer to a click is seen sooner, and a zoom outlives a refresh.
"""

import json
import weakref
from collections.abc import Callable, Mapping
from typing import Any

import plotly.graph_objects as go
import plotly.io as pio
import streamlit as st
from streamlit.components import v2

from .library import PLACE
from .listener import state
from .scripts import script

NAME = "ratioscope_chart"
SCRIPTS = ("library", "near", "kept", "linked", "definition", "keyed", "freed", "picture", "numbers", "chart")
USUAL_HEIGHT = 450
"""Pixels of a chart that names no height."""
_TOLD: dict[int, tuple[dict[str, Any], str]] = {}
"""The look of a figure's place before the figure is drawn, and the figure as JSON; by the figure's id, as long as it lives."""


def chart(
    figure: go.Figure,
    key: str,
    alt: str,
    config: Mapping[str, Any],
    *,
    on_click: Callable[[], object] | None = None,
    has_numbers: bool = False,
) -> None:
    """The figure, as wide as its place. config: of plotly.js. on_click: called when a point was clicked, see `points`.

    has_numbers: whether a button below asks for its table, see `listener.listen`.
    """
    look, text = _told(figure)
    options = look | {"alt": alt, "state": state(), "clickable": on_click is not None, "library": PLACE}
    options["numbers"] = key if has_numbers else ""
    drawn = f'{{"config": {json.dumps(config)}, "figure": {text}}}'
    _component()(key=key, data=f"{json.dumps(options)}\n{drawn}".encode(), on_points_change=on_click or _nothing)


def _told(figure: go.Figure) -> tuple[dict[str, Any], str]:
    """The look of the place and the JSON of the figure, made once: a page takes as long for all else of a chart shown before."""
    if id(figure) not in _TOLD:
        layout: Any = figure.layout
        look = {"height": layout.height or USUAL_HEIGHT, "paper": layout.template.layout.paper_bgcolor or ""}
        _TOLD[id(figure)] = look, str(pio.to_json(figure, validate=False))
        weakref.finalize(figure, _TOLD.pop, id(figure), None)
    return _TOLD[id(figure)]


def points(key: str) -> list[dict[str, Any]]:
    """The clicked points of the chart with this key, the nearest first: `x`, `customdata` and the name of the `trace`."""
    return [point for point in st.session_state[key].points or () if isinstance(point, dict)]


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component(NAME, js=script(*(f"{name}.js" for name in SCRIPTS)), isolate_styles=False)


def _nothing() -> None:
    """Streamlit keeps what a component may tell by what is called for it."""
