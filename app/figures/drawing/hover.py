"""The hover of a chart over steps: all values of the step at the pointer, and no value of another step.

Plotly shows the nearest point of every trace. A trace without a point at some step would show its neighbour there, and therefore
gets a silent point: it is invisible and appears in no label.
"""

from textwrap import wrap
from typing import Any

import numpy as np

from ratioscope.arrays import Floats

from ...presentation.escape import plotly as escaped
from ...presentation.escape import visible
from .canvas import tell_nearest
from .plotly_objects import go

EVENTS = "events"
"""The name of the traces of marks. Marks may move a little."""
WIDEST = 38
"""The most characters of a label's line: Plotly breaks no line, and cuts off a line that is wider than the chart."""
EXTRA = "<extra></extra>"
ONE = 500
"""Points nearer than the axis over this, about a pixel, are at one place for the pointer."""
OUT_OF_SIGHT = -1.0
"""The height of silent points of marks, below the marks' own axis from 0 to 1."""


def in_lines(text: str, longest: int) -> list[str]:
    """Foreign text in lines that fit into a label, escaped. longest: the most characters."""
    return [escaped(line) for line in wrap(visible(text, longest), WIDEST)]


def tell_steps(figure: go.Figure) -> None:
    """Shows the hover of the step nearest to the pointer, wherever the pointer is. Call it after all traces. Not for bars."""
    tell_nearest(figure)
    every: Any = figure.data  # the type stubs return names of members
    traces = [trace for trace in every if trace.hoverinfo != "skip" and trace.x is not None]
    lines = [_places(trace) for trace in traces if trace.name != EVENTS]
    drawn = np.unique(np.concatenate([np.zeros(0), *lines]))
    for trace in traces:
        if trace.name == EVENTS and len(drawn):
            # a mark too near to a drawn place to tell them apart moves to that place.
            marks = np.asarray(trace.x, np.float64)
            nearest = drawn[np.abs(marks[:, None] - drawn[None, :]).argmin(axis=1)]
            trace.x = np.where(np.abs(marks - nearest) * ONE <= np.ptp(drawn), nearest, marks)
    places = np.unique(np.concatenate([drawn, *(_places(trace) for trace in traces)]))
    for trace in traces:
        _fill(trace, _lacking(trace, places))


def _places(trace: Any) -> Floats:
    """The x of the points of the trace."""
    x, y = (np.asarray(values, np.float64) for values in (trace.x, trace.y))
    return x[np.isfinite(x) & np.isfinite(y)]


def _lacking(trace: Any, places: Floats) -> Floats:
    """The places where the trace needs a silent point: every one that it lacks.

    A trace of marks needs only those next to a mark: they are nearer to all other places than the mark is.
    """
    own = _places(trace)
    if trace.name != EVENTS:
        return np.setdiff1d(places, own)
    at = np.searchsorted(places, own)
    beside = np.concatenate([at - 1, at + 1])
    return np.setdiff1d(places[beside[(beside >= 0) & (beside < len(places))]], own)


def _fill(trace: Any, lacking: Floats) -> None:
    """Adds silent points at these places, with a gap in the line around each. A trace with a template has no silent points.

    Plotly makes an element of the page for each point of marks, and styles each element twice. It leaves out points beyond the
    axes if the number of marks is bounded. Silent points of marks lie there: the pointer finds them all the same.
    """
    own, y = len(trace.x), np.asarray(trace.y, np.float64)
    if not len(lacking) or not np.isfinite(y).any():
        return
    size = trace.marker.size
    sizes = list(size) if isinstance(size, list | tuple | np.ndarray) else [6 if size is None else size] * own
    words = [trace.hovertemplate.removesuffix(EXTRA)] * own if trace.customdata is None else list(trace.customdata)
    added = np.column_stack([np.full(len(lacking), np.nan), lacking]).ravel()
    height = OUT_OF_SIGHT if trace.name == EVENTS else y[np.isfinite(y)][0]
    trace.update(
        x=np.concatenate([np.asarray(trace.x, np.float64), added]),
        y=np.concatenate([y, np.where(np.isnan(added), np.nan, height)]),
        hovertemplate=None,
        hovertext=words,
        hoverinfo=["text"] * own + ["none"] * len(added),
    )
    if trace.name == EVENTS:
        trace.marker.maxdisplayed = own
    if "markers" in (trace.mode or ""):
        trace.marker.size = [*sizes, *[0] * len(added)]
