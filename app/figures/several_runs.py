"""One metric of one or several runs, or groups of runs, in one chart: raw and smoothed, with bands, limits and events."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.digits import digits
from ..presentation.escape import plotly as escaped
from ..presentation.run_names import SYMBOLS, shortened
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.along import Along, axis_along
from .drawing.bands import shaded
from .drawing.canvas import LINE, MARGIN, saying
from .drawing.faint_run import FaintRun, beside_words, faint, within
from .drawing.lines import (
    AxisType,
    DrawnLine,
    Line,
    legend,
    line_of,
    metric_canvas,
    on_grid,
    scale_of,
    size_words,
    thinned_words,
    what_is_shaded,
    why_absent,
)
from .drawing.marks import add_events, fit
from .drawing.plot import Pen, Plot, Trace, infinities, line_trace, value_words
from .drawing.plotly_objects import go
from .drawing.thinning import POINTS

MARKED = 7
"""Symbols along a line, so that readers can tell lines apart without colours."""
FEW = 40
"""A line of no more points has a symbol at each."""


def metric_of_runs(
    lines: Sequence[Line],
    metric: Metric,
    gap: str,
    *,
    axis: AxisType = "auto",
    along: Along = "step",
    half_life: float | None = None,
    limits: Sequence[Limit] = (),
    events: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    beside: FaintRun | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """The lines over the steps, with a legend above several lines.

    half_life: the half-life of the lines' `smooth`, in steps. events: columns step, event, note; `step` is in units of the axis.
    """
    drawn = on_grid(lines)
    there = np.concatenate([line.steps for line in lines]) if lines else np.zeros(0)
    other = None
    if beside is not None and along == "step" and len(there):
        other = within(there, line_of(beside.frame, metric, gap), POINTS)
    scale, without = scale_of(axis, drawn)
    band, *points_without = what_is_shaded(drawn, metric)
    caveats = (escaped(note, 160) for note in notes)
    said = (*caveats, without, _smoothed(drawn, half_life), band, scale.word)
    made = (size_words(lines, metric), *points_without, thinned_words(drawn))
    key = (
        beside_words(beside, other, theme) if along == "step" else "",
        *(legend(lines, theme) if len(lines) > 1 else ()),
    )
    figure = metric_canvas(metric, gap, said, theme, 250, made=made, key=key)
    _make_room(figure)
    if not any(np.isfinite(scale.place(part.raw.mean)).any() for part in drawn):
        return saying(figure, without or why_absent(lines, metric), theme)
    areas = [area for part in drawn for area in part.areas]
    means = [*(part.raw.mean for part in drawn), *([] if other is None else [other.mean])]
    plot = fit(figure, theme, scale, means, areas, limits, metric)
    words = [_words(part, metric, len(lines) > 1 or part.line.is_group) for part in drawn]
    pens = [_pen(part.line, gap, theme) for part in drawn]
    parts = zip(drawn, pens, words, strict=True)
    behind = [] if beside is None or other is None else [faint(plot, other, beside.name)]
    figure.add_traces([*behind, *(trace for part, pen, texts in parts for trace in _traces(plot, part, pen, texts))])
    add_events(figure, events, theme)
    axis_along(figure, np.concatenate([line.x for line in lines]), along)
    return figure


def _smoothed(drawn: Sequence[DrawnLine], half_life: float | None) -> str:
    """Note for the chart: which lines are smoothed, and which are raw."""
    if not half_life:
        return ""
    banded = any(np.isfinite(high - low).any() for part in drawn for low, high, _ in part.areas)
    return f"line smoothed, half-life {half_life:g} steps; faint line {'and band ' if banded else ''}raw"


def _make_room(figure: go.Figure) -> None:
    """Makes the chart taller by each line of notes after the second, so that the plot keeps its height."""
    layout: Any = figure.layout  # plotly makes its attributes at run time
    figure.update_layout(height=layout.height + layout.margin.t - MARGIN["t"] - LINE)


def _colour(line: Line, gap: str, theme: Theme) -> str:
    return theme.of_gap(gap) if line.slot is None else theme.runs[line.slot]


def _pen(line: Line, gap: str, theme: Theme) -> Pen:
    width, size = 1.6 if line.smooth is None else 2, 4 if line.slot is None else 6
    symbol = SYMBOLS[line.slot or 0]
    return Pen(_colour(line, gap, theme), escaped(line.name, 80), width, symbol=symbol, size=size, marked=FEW)


def _traces(plot: Plot, part: DrawnLine, pen: Pen, texts: Sequence[str]) -> list[Trace]:
    """A line with its areas, the raw values behind a smoothed one, and marks at infinite values."""
    run = part.line
    traces = shaded(plot, part.raw.middle, part.areas, pen.colour)
    if run.smooth is not None:
        pale = {"color": faded(pen.colour, 0.55), "width": 1}
        traces.append(_silent(part.raw.middle, plot.scale.place(part.raw.mean), mode="lines", line=pale))
    traces.append(line_trace(plot, part.main, pen, texts))
    if run.slot is not None and len(part.main.middle) > FEW:
        y = plot.scale.place(part.main.mean)
        known = np.flatnonzero(np.isfinite(y))
        apart = max(1, len(known) // MARKED)
        at = known[(run.slot * apart // len(SYMBOLS)) :: apart]
        marker = {"symbol": SYMBOLS[run.slot], "size": 7, "color": pen.colour}
        traces.append(_silent(part.main.middle[at], y[at], mode="markers", marker=marker))
    diamond = {"symbol": "diamond-open", "size": 8, "color": pen.colour}
    return [*traces, *infinities(plot, run.x, run.values, diamond, f"{escaped(shortened(run.name))} ")]


def _silent(x: Floats, y: Floats, **options: Any) -> Trace:
    return {"type": "scatter", "x": x, "y": y, "hoverinfo": "skip", **options}


def _words(part: DrawnLine, metric: Metric, named: bool) -> list[str]:
    """The words at each point, after the name of the run where several are drawn."""
    name = f"{escaped(shortened(part.line.name))}: " if named else ""
    texts = value_words(part.raw, metric, of_runs=part.line.is_group)
    if part.line.smooth is None:
        return [f"{name}{text}" for text in texts]
    means = part.main.mean.tolist()
    return [f"{name}{text} · smoothed {digits(mean)}" for text, mean in zip(texts, means, strict=True)]
