"""The x axis of a chart: steps, the tokens so far, or the time since a run began; linear, or logarithmic for
what happens early in a long run.
"""

import math
import weakref
from typing import Any, Literal

import numpy as np

from ratioscope.arrays import Floats

from .hover import tell_steps
from .plotly_objects import go

Along = Literal["step", "tokens", "time"]
DURATIONS = (1, 5, 15, 60, 300, 600, 1800, 3600, 7200, 21_600, 43_200, 86_400, 172_800, 604_800)
MOST_TICKS = 8


def axis_along(figure: go.Figure, x: Floats, along: Along, *, live: bool = True) -> None:
    """Sets the x axis. x: the places of all points; seconds for time. live: with the hover of a live chart."""
    figure.update_layout(meta=ALONG)
    if along == "step":
        step_axis(figure, x)
        if live:
            tell_steps(figure)
        return
    low, high = float(x.min()), float(x.max())
    room = 0.01 * (high - low) or 1.0
    figure.update_xaxes(range=[low - room, high + room])
    figure.update_layout(hovermode="closest", hoverdistance=30)
    if along == "tokens":
        figure.update_xaxes(title={"text": "tokens so far"}, tickformat="~s")
        return
    if high - low < 2:
        figure.update_xaxes(title={"text": "since the run began"}, ticksuffix=" s")
        return
    longest = DURATIONS[-1] * max(1, math.ceil((high - low) / MOST_TICKS / DURATIONS[-1]))
    apart = next((size for size in DURATIONS if (high - low) / size <= MOST_TICKS), longest)
    ticks = (np.arange(math.ceil(low / apart), math.floor(high / apart) + 1) * apart).tolist()
    words = [duration(tick) for tick in ticks]
    figure.update_xaxes(title={"text": "since the run began"}, tickvals=ticks, ticktext=words)


def duration(seconds: float) -> str:
    """Whole days, hours, minutes and seconds.

    >>> duration(0), duration(5400), duration(86400), duration(180000), duration(75)
    ('0', '1 h 30 min', '1 d', '2 d 2 h', '1 min 15 s')
    """
    whole = round(seconds)
    parts = ((whole // 86_400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s"))
    return " ".join(f"{number} {unit}" for number, unit in parts if number) or "0"


def step_axis(figure: go.Figure, steps: Floats, width: float = 1.0) -> None:
    """Sets the x axis to the steps, with ticks at whole steps and both ends in full view. width: the width of a mark, in steps.

    Margins stay fixed: numbers of a few digits fit, and Plotly takes twice as long to draw a chart whose margins depend on its
    labels. A chart with names of rows lets margins grow, see `fit_labels`.
    """
    first, last = float(steps.min()), float(steps.max())
    room = max(width / 2, 0.01 * (last - first))
    figure.update_xaxes(
        range=[first - room, last + room],
        tickformat="d",
        dtick=1 if last - first < 8 else None,
        tickprefix="step ",
        showtickprefix="first",
        unifiedhovertitle={"text": "step %{x:d}"},
    )
    figure.update_layout(margin={"autoexpand": False})


def fit_labels(figure: go.Figure) -> None:
    """Lets the margins of a chart over steps grow with the names of rows or the title of an axis."""
    figure.update_layout(margin={"autoexpand": True})


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
