"""The gap of each step before and after a cause is undone: the picture of the proof."""

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ..presentation.digits import a_step, count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.along import step_axis
from .drawing.bands import NO_ERROR
from .drawing.canvas import canvas, saying
from .drawing.floats import floats
from .drawing.hover import tell_steps
from .drawing.marks import fit
from .drawing.plotly_objects import go
from .drawing.scale import Scale, suitable
from .lags import legend_below

BEFORE, AFTER = 7, 11
"""Pixels of the two marks: where both are at one place, one is seen inside the other."""


def undoing(frame: pl.DataFrame, gap: str, words: str, *, theme: Theme = LIGHT) -> go.Figure:
    """Two marks at each step that was read, joined by a line: the gap as recorded, and the gap after the undoing.

    frame: columns step, tokens, before, after; mean clipped K3 in nats/token. words: the undoing, after "the gap".
    No line leads from step to step, because most steps between were not read.
    """
    title = f"The gap with and without the cause <i>{gap}</i>"
    if frame.is_empty():
        return saying(canvas(title, theme=theme, height=300), "not available, because no step is on record", theme)
    before, after = floats(frame, "before"), floats(frame, "after")
    scale = suitable(np.concatenate([before, after]))
    notes, made = ("clipped K3, nats/token", scale.word), ("mean over the tokens read", _size(frame), NO_ERROR)
    figure = canvas(title, notes, theme=theme, height=300, lines=2, made=made)
    fit(figure, theme, scale, [before, after])
    steps = floats(frame, "step")
    figure.add_scatter(**_joints(steps, scale.place(before), scale.place(after), theme))
    for name, values, symbol, colour in (
        ("as recorded", before, "circle", theme.gaps.get(gap, theme.primary)),
        (words, after, "diamond-open", theme.ink["healthy"]),
    ):
        figure.add_scatter(**_marks(name, steps, values, scale, symbol, colour))
    step_axis(figure, steps)
    tell_steps(figure)
    legend_below(figure, theme)
    return figure


def _size(frame: pl.DataFrame) -> str:
    tokens = a_step(frame["tokens"].to_list(), "token")
    return f"{tokens}, {count(len(frame), 'step')} read"


def _joints(steps: Floats, high: Floats, low: Floats, theme: Theme) -> dict[str, object]:
    gap = np.full(len(steps), np.nan)
    return {
        "x": np.column_stack([steps, steps, gap]).ravel(),
        "y": np.column_stack([high, low, gap]).ravel(),
        "mode": "lines",
        "line": {"color": faded(theme.muted, 0.45), "width": 2},
        "hoverinfo": "skip",
        "showlegend": False,
    }


def _marks(name: str, steps: Floats, values: Floats, scale: Scale, symbol: str, colour: str) -> dict[str, object]:
    shown = escaped(name)
    return {
        "x": steps,
        "y": scale.place(values),
        "mode": "markers",
        "marker": {
            "symbol": symbol,
            "size": AFTER if "open" in symbol else BEFORE,
            "color": colour,
            "line": {"color": colour, "width": 2 if "open" in symbol else 0},
        },
        "name": shown,
        "customdata": [f"{shown}: {digits(value)} nats/token" for value in values.tolist()],
        "hovertemplate": "%{customdata}<extra></extra>",
        "cliponaxis": False,
    }
