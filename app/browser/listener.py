"""What the browser tells of itself: whether its window is narrow. Plotly breaks no line, so the page is drawn anew for it.

Streamlit's shortcuts know letters and digits only; the same script listens to `?`, `[` and `]` (listener.js).
"""

from typing import Any

import streamlit as st
from streamlit.components import v2

from ..serving.chart_library import PLACE
from .scripts import script


def note_state(place: str) -> None:
    """Notes what is about to be drawn. place: run and page; a zoom is kept as long as it and the URL stay the same."""
    st.session_state["_drawn_narrow"] = is_narrow()
    st.session_state["_state"] = f"{place}?{sorted(st.query_params.to_dict().items())}"


def state() -> str:
    """What is being drawn, as it was noted."""
    return str(st.session_state.get("_state", ""))


def is_narrow() -> bool:
    """Whether the window is too narrow for half a page as it is drawn for others; not until the browser has said so."""
    return st.session_state.get("_narrow") is True


@st.fragment
def listen() -> None:
    """Puts the script on the page; below all that is drawn, for it has a place of its own there."""
    if is_narrow() != st.session_state.get("_drawn_narrow", is_narrow()):
        st.rerun()
    data = {"library": PLACE, "narrow": is_narrow()}
    _component()(key="listener", data=data, on_narrow_change=_note_narrow, height=0)


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component("ratioscope_listener", js=script("library.js", "listener.js"))


def _note_narrow() -> None:
    st.session_state["_narrow"] = st.session_state["listener"].narrow is True
