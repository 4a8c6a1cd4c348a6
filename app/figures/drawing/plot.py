"""A figure with its value axis, the lines on it, and the pens of several lines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.metrics.metric import Metric

from ...presentation.digits import digits
from ...presentation.theme import Theme
from ...presentation.value_text import value_with_error
from .plotly_objects import go
from .scale import Scale
from .thinning import POINTS, LineBuckets, line_and_marks

Trace = dict[str, Any]
"""A trace as Plotly reads it. Figures add all their traces in one call, because each call validates the whole figure."""


@dataclass(frozen=True)
class Plot:
    """A figure with its value axis."""

    figure: go.Figure
    scale: Scale
    shown: tuple[float, float]
    """The range of the value axis, in axis positions."""
    theme: Theme


@dataclass(frozen=True)
class Pen:
    """The appearance of one line."""

    colour: str
    """As CSS has it."""
    name: str
    """The name of its trace, escaped."""
    width: float = 1.6
    """In pixels."""
    dash: str | None = None
    """Plotly's name of the dashes; None: an unbroken line."""
    symbol: str | None = None
    """Plotly's name of the marks; None: Plotly's usual one."""
    size: float = 6
    """The size of its marks, in pixels."""
    marked: int = 0
    """The most points of a line with a mark at each point."""


def diagonal(low: float, high: float, colour: str, name: str | None = None) -> go.Scatter:
    """The dotted line on which both axes have the same value, from low to high."""
    line = {"color": colour, "width": 1, "dash": "dot"}
    return go.Scatter(x=[low, high], y=[low, high], mode="lines", line=line, hoverinfo="skip", name=name)


def line_trace(plot: Plot, drawn: LineBuckets, pen: Pen, texts: Sequence[str]) -> Trace:
    """A line through the means. texts: the words at each point."""
    return {
        "type": "scatter",
        "x": drawn.middle,
        "y": plot.scale.place(drawn.mean),
        **line_and_marks(drawn, pen.size, all_marked=len(drawn.mean) <= pen.marked),
        "line": {"color": pen.colour, "width": pen.width, "dash": pen.dash},
        "marker": {"color": pen.colour, "symbol": pen.symbol},
        "name": pen.name,
        "customdata": texts,
        "hovertemplate": "%{customdata}<extra></extra>",
    }


def infinities(plot: Plot, x: Floats, values: Floats, marker: Trace, name: str = "") -> list[Trace]:
    """Marks at the edge of the chart at infinite values: an infinite value is a value, and no line can reach it."""
    low, high = plot.shown
    ends = ((np.isposinf(values), high, "∞"), (np.isneginf(values), low, "−∞"))
    return [
        {
            "type": "scatter",
            "x": x[infinite][:POINTS],
            "y": np.full(int(infinite.sum()), place)[:POINTS],
            "mode": "markers",
            "marker": marker,
            "hovertemplate": f"{name}{word}<extra></extra>",
            "cliponaxis": False,
        }
        for infinite, place, word in ends
        if infinite.any()
    ]


def value_words(drawn: LineBuckets, metric: Metric, *, of_runs: bool = False) -> list[str]:
    """The value at each point with its error; for a bucket of several steps its mean and its extremes.

    of_runs: low and high are the extremes over the runs of a group.
    """
    texts = []
    names = ("first", "last", "low", "mean", "high", "error")
    for first, last, low, mean, high, error in zip(*(getattr(drawn, name).tolist() for name in names), strict=True):
        between = f"from {digits(low)} to {digits(high)}"
        if first < last:
            texts.append(f"steps {first:.0f}–{last:.0f}: mean {digits(mean)}, {between}")
        elif of_runs:
            texts.append(f"step {first:.0f}: mean {digits(mean)}, runs {between}")
        else:
            texts.append(value_with_error(metric, mean, None if math.isnan(error) else error))
    return texts


DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
STROKES = {
    "solid": "",
    "dash": "7 5",
    "dot": "2 4",
    "dashdot": "7 4 2 4",
    "longdash": "11 5",
    "longdashdot": "11 4 2 4",
}


def swatch(place: int, theme: Theme) -> str:
    """A piece of the line at this place in the key, as an image in HTML."""
    colour, dash = series_colour(place, theme), STROKES[DASHES[place % len(DASHES)]]
    mark = _MARKS[SYMBOLS[place % len(SYMBOLS)]]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 34 12" fill="{colour}" stroke="{colour}">'
        f'<path d="M0 6H34" stroke-width="2" stroke-dasharray="{dash or "none"}"/><path d="{mark}" stroke-width="1.6"/></svg>'
    )
    return f'<img alt="" width="34" height="12" src="data:image/svg+xml,{quote(svg)}">'


_MARKS = {
    "circle": "M14 6a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "square": "M14 3h6v6h-6z",
    "diamond": "M17 2l4 4l-4 4l-4-4z",
    "triangle-up": "M17 2l4 7h-8z",
    "x": "M14 3l6 6M20 3l-6 6",
    "cross": "M17 2v8M13 6h8",
    "star": "M17 2l1.3 3h3l-2.4 2l1 3l-2.9-1.8l-2.9 1.8l1-3l-2.4-2h3z",
    "hexagon": "M14 6l1.5-3h3l1.5 3l-1.5 3h-3z",
}


def series_colour(place: int, theme: Theme) -> str:
    return theme.series[place % len(theme.series)]
