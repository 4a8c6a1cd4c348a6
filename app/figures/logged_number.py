"""A number that trainers logged by step, as they logged it: a line for each run, on one value axis."""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import polars as pl

from ..presentation.digits import count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.run_names import SYMBOLS, shortened
from ..presentation.theme import LIGHT, Theme
from .drawing.along import axis_along
from .drawing.bands import edges, shaded
from .drawing.canvas import canvas, saying
from .drawing.lines import Line, legend
from .drawing.marks import add_events, fit
from .drawing.plot import Pen, infinities, line_trace
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import LineBuckets, thinned_steps

LOGGED = "logged by the trainer: one value a step, without a standard error"
FEW = 80
"""A line of no more points has a mark at each."""


def logged_over_steps(
    lines: Sequence[Line],
    name: str,
    note: str,
    *,
    estimate: str = LOGGED,
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """lines: a run's values by step; NaN leaves a hole, an infinite value has a mark at the edge. name: the trainer's, of the
    title. note: what is known about the number. Both may come from a stranger's file. estimate: how a value was made."""
    drawn = [thinned_steps(line.steps, line.values, line.errors) for line in lines]
    means = [each.mean for each in drawn]
    known = bool(lines) and any(np.isfinite(mean).any() for mean in means)
    scale = suitable(np.concatenate(means)) if known else None
    made = (
        estimate,
        *(f"{escaped(shortened(line.name))}: {count(len(line.steps), 'step')}" for line in lines),
        next((each.note for each in drawn if each.note), ""),
    )
    word, key = "" if scale is None else scale.word, legend(lines, theme) if len(lines) > 1 else ()
    figure = canvas(escaped(name, 70), (escaped(note, 160), word), theme=theme, height=250, made=made, key=key)
    if scale is None:
        return saying(figure, "not available, because no value at these steps is a number", theme)
    areas = [edges(each) if np.isfinite(each.error).any() else [] for each in drawn]
    plot = fit(figure, theme, scale, means, chain(*areas))
    for line, each, own in zip(lines, drawn, areas, strict=True):
        slot = line.slot or 0
        colour = theme.primary if line.slot is None else theme.runs[slot]
        pen = Pen(colour, escaped(line.name, 80), symbol=SYMBOLS[slot], size=4, marked=FEW)
        diamond = {"symbol": "diamond-open", "size": 8, "color": colour}
        named = f"{escaped(shortened(line.name))}: " if len(lines) > 1 else ""
        trace = line_trace(plot, each, pen, [f"{named}{text}" for text in _words(each)])
        figure.add_traces(
            [*shaded(plot, each.middle, own, colour), trace, *infinities(plot, line.x, line.values, diamond, named)]
        )
    add_events(figure, events, theme)
    axis_along(figure, np.concatenate([line.x for line in lines]), "step", live=theme.live)
    return figure


def _words(drawn: LineBuckets) -> list[str]:
    columns = (getattr(drawn, name).tolist() for name in ("first", "last", "low", "mean", "high"))
    return [
        f"steps {first:.0f}–{last:.0f}: mean {digits(mean)}, from {digits(low)} to {digits(high)}"
        if first < last
        else digits(mean)
        for first, last, low, mean, high in zip(*columns, strict=True)
    ]
