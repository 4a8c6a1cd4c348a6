"""The one script of ours that runs in the browser: it tells where charts were zoomed and whether the window is narrow, and it
listens to `?`, `[`, `]`.

Streamlit draws a chart anew whenever its data change, and the new chart knows nothing of the old one's zoom. So the zoom is told
to the server, which gives it to the next drawing. Plotly breaks no line, so a narrow window is told too, whenever it becomes
narrow or wide, and the page is drawn anew for it. The script is a constant and reads no data of a run.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

import plotly.graph_objects as go
import streamlit as st
from streamlit.components import v2

from .serving.chart_script import chart_script

_SCRIPT = """
const narrow = matchMedia("(max-width: 520px)")
const ours = window.ratioscope ??= { zooms: {}, state: null, tell: null }

function note(plot, event) {
  const key = [...(plot.closest("[class*=st-key-]")?.classList ?? [])].find(name => name.startsWith("st-key-"))?.slice(7)
  if (!key) return
  const zoom = { ...ours.zooms[key] }
  for (const [name, value] of Object.entries(event)) {
    const [, axis, what, end] = name.match(/^([xy]axis[0-9]*)[.](range|autorange)(?:\\[([01])\\])?$/) ?? []
    if (what === "autorange" && value) delete zoom[axis]
    if (what === "range" && end === undefined) zoom[axis] = value
    if (what === "range" && end !== undefined) zoom[axis] = Object.assign([...(zoom[axis] ?? [0, 0])], { [end]: value })
  }
  if (JSON.stringify(zoom) === JSON.stringify(ours.zooms[key] ?? {})) return
  ours.zooms = { ...ours.zooms, [key]: zoom }
  ours.tell("zoom", { state: ours.state, zooms: ours.zooms })
}

function listen() {
  for (const plot of document.querySelectorAll(".js-plotly-plot"))
    if (plot.on && !plot.ratioscope) {
      plot.ratioscope = true
      plot.on("plotly_relayout", event => note(plot, event))
    }
}

const presses = { "?": "keys", "[": "step_before", "]": "step_after" }

function ask(event) {
  const typing = event.target.closest?.("input, textarea, [contenteditable=true]")
  const key = presses[event.key]
  if (key && !typing && !event.ctrlKey && !event.metaKey && !document.querySelector("[role=dialog]"))
    document.querySelector(`.st-key-${key} button`)?.click()
}

function fetchCharts(script) {
  import(new URL(script, document.baseURI).href).catch(() => {})
}

function tellWidth() {
  if (narrow.matches !== ours.narrow) ours.tell("narrow", (ours.narrow = narrow.matches))
}

export default function (component) {
  ours.tell = component.setStateValue
  ours.narrow = component.data.narrow
  tellWidth()
  narrow.onchange = tellWidth
  if (ours.state !== component.data.state) {
    ours.state = component.data.state
    ours.zooms = {}
  }
  const observer = new MutationObserver(listen)
  observer.observe(document.body, { childList: true, subtree: true })
  document.addEventListener("keydown", ask)
  listen()
  if (component.data.charts) requestIdleCallback(fetchCharts.bind(null, component.data.charts))
  return () => {
    observer.disconnect()
    document.removeEventListener("keydown", ask)
  }
}
"""


def note_state(place: str) -> None:
    """Notes what is about to be drawn. place: run and page; a zoom is kept as long as it and the URL stay the same."""
    st.session_state["_drawn_narrow"] = is_narrow()
    st.session_state["_state"] = f"{place}?{sorted(st.query_params.to_dict().items())}"


def listen() -> None:
    """Puts the script on the page; below all that is drawn, for it has a place of its own there."""
    _listener(str(st.session_state.get("_state", "")))


def is_narrow() -> bool:
    """Whether the window is too narrow for half a page as it is drawn for others; not until the browser has said so."""
    return st.session_state.get("_narrow") is True


def zoomed(figure: go.Figure, key: str) -> go.Figure:
    """The chart of this key as the reader zoomed it: the figure itself, which others may share, or a copy of it.

    The browser knows a key by its class, in which Streamlit writes a hyphen for whatever is no letter, digit or underscore.
    """
    told = st.session_state.get("_zoom")
    zooms = (
        told.get("zooms") if isinstance(told, Mapping) and told.get("state") == st.session_state.get("_state") else None
    )
    zoom = zooms.get(re.sub(r"[^\w-]", "-", key, flags=re.ASCII)) if isinstance(zooms, Mapping) else None
    if not isinstance(zoom, Mapping) or not zoom:
        return figure
    own = go.Figure(figure)
    layout: Any = own.layout  # plotly makes its attributes at run time
    for axis, ends in zoom.items():
        if axis in layout and _is_range(ends):
            layout[axis].update(range=list(ends), autorange=False)
    return own


@st.fragment
def _listener(state: str) -> None:
    if is_narrow() != st.session_state.get("_drawn_narrow", is_narrow()):
        st.rerun()
    data = {"state": state, "charts": chart_script(), "narrow": is_narrow()}
    _component()(key="listener", data=data, on_zoom_change=_note_zoom, on_narrow_change=_note_narrow, height=0)


@st.cache_resource(show_spinner=False)
def _component() -> Any:
    return v2.component("ratioscope_listener", js=_SCRIPT)


def _note_narrow() -> None:
    st.session_state["_narrow"] = st.session_state["listener"].narrow is True


def _note_zoom() -> None:
    """Remembers the zoom for the next drawing. It is called before the script runs, whichever part of it that is: a page drawn
    anew at the same moment knows of it already."""
    st.session_state["_zoom"] = st.session_state["listener"].zoom


def _is_range(ends: object) -> TypeGuard[Sequence[float]]:
    """Whether what a browser told is two finite numbers."""
    if not isinstance(ends, (list, tuple)) or len(ends) != 2:
        return False
    return all(isinstance(end, (int, float)) and math.isfinite(end) for end in ends)
