"""One metric of one or several runs, or groups of runs, in one chart: raw and smoothed, with bands, limits and events."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.digits import digits
from ..presentation.escape import plotly as escaped
from ..presentation.run_colours import MARKS, SYMBOLS
from ..presentation.run_names import shortened
from ..presentation.theme import LIGHT, Theme, faded
from ..presentation.value_text import measured
from .drawing.along import Along, axis_along
from .drawing.bands import reach, shaded
from .drawing.canvas import LINE, MARGIN, canvas, saying
from .drawing.definition import add_definition
from .drawing.lines import (
    CELLS,
    Axis,
    DrawnLine,
    Line,
    legend_name,
    on_grid,
    scale_of,
    size_words,
    thinned_words,
    what_is_shaded,
)
from .drawing.marks import add_events, add_limits, fit, reach_of_zeros
from .drawing.scale import Floats, Scale
from .drawing.thinned import line_and_marks

MARKED = 7
"""Symbols along a line, so that it is told from others without its colour."""
FEW = 40
"""A line of no more points has a symbol at each."""


def metric_of_runs(
    lines: Sequence[Line],
    metric: Metric,
    gap: str,
    *,
    axis: Axis = "auto",
    along: Along = "step",
    half_life: float | None = None,
    limits: Sequence[Limit] = (),
    events: pl.DataFrame | None = None,
    notes: Sequence[str] = (),
    theme: Theme = LIGHT,
    height: int = 250,
) -> go.Figure:
    """The lines over the steps; above more than one line its name, colour and symbol. What the metric is stands behind the ?.

    half_life: of the lines' `smooth`, in steps. events: columns step, event, note, with `step` in units of the axis.
    """
    drawn = on_grid(lines)
    legend = _legend(lines, gap, theme) if len(lines) > 1 else []
    scale, without = scale_of(axis, drawn)
    told = (
        metric.unit if metric.unit != "1" else "",
        metric.weighting,
        size_words(lines, metric),
        what_is_shaded(drawn, metric),
        _smoothed(drawn, half_life),
        scale.word,
        without,
        thinned_words(drawn),
        *(escaped(note, 160) for note in notes),
        *legend,
    )
    figure = canvas(f"{metric.name} <i>{gap}</i>", told, theme=theme, height=height, lines=2)
    _make_room(figure)
    add_definition(figure, metric, theme)
    if not any(np.isfinite(scale.place(part.raw.mean)).any() for part in drawn):
        infinite = any(np.isinf(line.values).any() for line in lines)
        absent = "infinite at every step" if infinite else f"not available, because {metric.absent}"
        return saying(figure, without or absent, theme)
    shown = _axis(figure, drawn, scale, limits, reach_of_zeros(metric))
    add_limits(figure, limits, scale, shown, theme)
    traces: list[dict[str, Any]] = []
    for part in drawn:
        pen = _Pen(traces, scale, shown, _colour(part.line, gap, theme))
        pen.draw(part, metric, named=len(lines) > 1 or part.line.is_group)
    figure.add_traces(traces)  # in one go: each call looks at the whole figure
    add_events(figure, events, theme)
    axis_along(figure, np.concatenate([line.x for line in lines]), along)
    return figure


def _smoothed(drawn: Sequence[DrawnLine], half_life: float | None) -> str:
    """What is smoothed, and what is not."""
    if not half_life:
        return ""
    banded = any(np.isfinite(high - low).any() for part in drawn for low, high, _ in part.areas)
    return f"line smoothed, half-life {half_life:g} steps; faint line {'and band ' if banded else ''}raw"


def _make_room(figure: go.Figure) -> None:
    """Every line of notes above the second makes the chart taller, so that what is drawn keeps its height."""
    layout: Any = figure.layout  # plotly makes its attributes at run time
    figure.update_layout(height=layout.height + layout.margin.t - MARGIN["t"] - LINE)


def _colour(line: Line, gap: str, theme: Theme) -> str:
    return theme.gaps[gap] if line.slot is None else theme.runs[line.slot]


def _axis(
    figure: go.Figure, drawn: Sequence[DrawnLine], scale: Scale, limits: Sequence[Limit], zeros: float
) -> tuple[float, float]:
    """Sets the value axis so that lines, bands and near limits fit; its range in axis positions."""
    areas = [area for part in drawn for area in part.areas]
    return fit(figure, reach(scale, [part.raw.mean for part in drawn], areas), scale, limits, zeros=zeros)


class _Pen:
    """Adds traces of one colour to those of a figure whose value axis is set."""

    def __init__(self, traces: list[dict[str, Any]], scale: Scale, shown: tuple[float, float], colour: str) -> None:
        self.traces, self.scale, self.shown, self.colour = traces, scale, shown, colour

    def draw(self, part: DrawnLine, metric: Metric, *, named: bool) -> None:
        line, main = part.line, part.main
        for low, high, opacity in part.areas:
            self.traces += shaded(part.raw.middle, low, high, self.scale, self.shown[0], self.colour, opacity)
        if line.smooth is not None:
            behind = {"color": faded(self.colour, 0.55), "width": 1}
            self._scatter(part.raw.middle, part.raw.mean, mode="lines", line=behind, hoverinfo="skip")
        self._scatter(
            main.middle,
            main.mean,
            **line_and_marks(main, 4 if line.slot is None else 6, all_marked=len(main.middle) <= FEW),
            line={"color": self.colour, "width": 1.6 if line.smooth is None else 2},
            marker={"color": self.colour, "symbol": SYMBOLS[line.slot or 0]},
            name=escaped(line.name, 80),
            customdata=_hover(part, metric, named),
            hovertemplate="%{customdata}<extra></extra>",
        )
        if line.slot is not None and len(main.middle) > FEW:
            self._symbols(line.slot, main.middle, main.mean)
        self._infinities(line)

    def _scatter(self, x: Floats, values: Floats, **options: Any) -> None:
        self._trace(x=x, y=self.scale.place(values), **options)

    def _trace(self, **options: Any) -> None:
        self.traces.append({"type": "scatter", "showlegend": False, **options})

    def _symbols(self, slot: int, x: Floats, values: Floats) -> None:
        """A few symbols along the line, at other places than those of other lines."""
        known = np.flatnonzero(np.isfinite(self.scale.place(values)))
        apart = max(1, len(known) // MARKED)
        at = known[(slot * apart // len(SYMBOLS)) :: apart]
        marker = {"symbol": SYMBOLS[slot], "size": 7, "color": self.colour}
        self._scatter(x[at], values[at], mode="markers", marker=marker, hoverinfo="skip")

    def _infinities(self, line: Line) -> None:
        """A mark at the edge of the chart where a value is infinite: it is a value, and no line can reach it."""
        ends = ((np.isposinf(line.values), self.shown[1], "∞"), (np.isneginf(line.values), self.shown[0], "−∞"))
        for infinite, place, word in ends:
            if infinite.any():
                at = np.flatnonzero(infinite)[:CELLS]
                self._trace(
                    x=line.x[at],
                    y=np.full(len(at), place),
                    mode="markers",
                    marker={"symbol": "diamond-open", "size": 8, "color": self.colour},
                    hovertemplate=f"{escaped(shortened(line.name))} {word}<extra></extra>",
                    cliponaxis=False,
                )


def _hover(part: DrawnLine, metric: Metric, named: bool) -> list[str]:
    raw = part.raw
    name = f"{escaped(shortened(part.line.name))}: " if named else ""
    told = []
    for at, mean in enumerate(raw.mean.tolist()):
        error = float(raw.error[at])
        between = f"from {digits(raw.low[at])} to {digits(raw.high[at])}"
        if raw.first[at] < raw.last[at]:
            text = f"steps {raw.first[at]:.0f}–{raw.last[at]:.0f}: mean {digits(mean)}, {between}"
        elif part.line.is_group:
            text = f"step {raw.first[at]:.0f}: mean {digits(mean)}, runs {between}"
        else:
            text = measured(metric, mean, None if math.isnan(error) else error)
        smooth = "" if part.line.smooth is None else f" · smoothed {digits(float(part.main.mean[at]))}"
        told.append(f"{name}{text}{smooth}")
    return told


def _legend(lines: Sequence[Line], gap: str, theme: Theme) -> list[str]:
    """Name, colour and symbol of each line, as lines of notes."""
    rows: list[str] = []
    used = theme.columns
    for line in lines:
        name = legend_name(line)
        if used + len(name) + 4 > theme.columns:
            rows.append("")
            used = 0
        colour, symbol = _colour(line, gap, theme), MARKS[line.slot or 0]
        rows[-1] += f'<span style="color:{colour}">{symbol}</span> {escaped(name)}&#160;&#160; '
        used += len(name) + 4
    return rows
