"""The x axis of a chart: steps, the tokens so far, or the time since a run began.

The axis of a chart over steps.
"""

import math
from typing import Literal

import numpy as np

from ratioscope.arrays import Floats

from .hover import tell_steps
from .log_x import ALONG
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
