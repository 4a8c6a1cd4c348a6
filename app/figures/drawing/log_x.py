"""A chart of lines with a logarithmic axis of steps, tokens or time, for what happens early in a long run."""

import math
import weakref
from typing import Any

import numpy as np

from .plotly_objects import go

ALONG = "along"
"""The mark of a chart whose x axis can be logarithmic, in its `meta`."""
_MADE: dict[int, go.Figure] = {}
"""By the id of the chart with a plain axis, as long as that lives: pages draw the same figure again and again."""


def with_log_x(figure: go.Figure) -> go.Figure:
    """The chart with a logarithmic x axis; the chart itself if it has bars or cells, another axis, or no place above 0.

    A place at or below 0 has no logarithm, and is left out.
    """
    if id(figure) not in _MADE:
        made = _made(figure)
        if made is figure:
            return figure
        _MADE[id(figure)] = made
        weakref.finalize(figure, _MADE.pop, id(figure), None)
    return _MADE[id(figure)]


def _made(figure: go.Figure) -> go.Figure:
    layout: Any = figure.layout  # plotly makes its attributes at run time
    traces: Any = figure.data
    along = layout.meta == ALONG
    if not along or any(trace.type != "scatter" for trace in traces):
        return figure
    places = np.concatenate(
        [np.zeros(0), *(np.asarray(trace.x, np.float64) for trace in traces if trace.x is not None)]
    )
    above = places[np.isfinite(places) & (places > 0)]
    if not len(above):
        return figure
    low, high = math.log10(above.min()), math.log10(above.max())
    room = 0.01 * (high - low) or 0.1
    logged = go.Figure(figure)
    logged.update_xaxes(type="log", range=[low - room, high + room], dtick=None, autorange=None, autorangeoptions=None)
    shapes = [shape.to_plotly_json() for shape in layout.shapes]
    texts = [text.to_plotly_json() for text in layout.annotations]
    logged.update_layout(
        shapes=[shape for shape in shapes if shape.get("xref") == "paper" or shape["x0"] > 0],
        annotations=[placed for text in texts if (placed := _placed(text)) is not None],
    )
    return logged


def _placed(text: dict[str, Any]) -> dict[str, Any] | None:
    """The words at the logarithm of their place, as Plotly wants it of words and not of lines; None where there is none."""
    if text.get("xref", "x") == "paper":
        return text
    return text | {"x": math.log10(text["x"])} if text["x"] > 0 else None
