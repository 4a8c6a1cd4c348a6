"""One metric over the steps of a run: its line, its standard error, where it is graded, and what happened meanwhile."""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.metrics.analysis.unseen_share import unseen_share
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric
from ratioscope.record import GAPS

from ..presentation.digits import a_step, digits
from ..presentation.theme import LIGHT, Theme
from ..presentation.value_text import measured
from .drawing.bands import around, band_words, edges, reach
from .drawing.canvas import canvas, saying
from .drawing.floats import floats, typical
from .drawing.hover import tell_steps
from .drawing.marks import add_events, add_limits, fit, reach_of_zeros
from .drawing.scale import Scale, suitable
from .drawing.step_axis import step_axis
from .drawing.thinned import POINTS, Floats, Thinned, line_and_marks, thinned_steps

FEW = 80
"""A line of no more points has a mark at each."""


def metric_over_steps(
    frame: pl.DataFrame,
    metric: Metric,
    gap: str,
    *,
    limits: Sequence[Limit] = (),
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
    points: int = POINTS,
    height: int = 250,
) -> go.Figure:
    """The metric's line over `frame` (a metric frame with one row per step), thinned by bucket mean with min and max kept.

    events: columns step, event, note. A frame without the metric gives an empty sheet that says so.
    """
    name = f"{gap}/{metric.name}"
    steps, values, errors = (floats(frame, column) for column in ("step", name, f"{name}_se"))
    sizes = floats(frame, f"{gap}/{metric.level}s")
    drawn = thinned_steps(steps, values, errors, points)
    drawn = replace(drawn, unseen=unseen_share(metric, typical(sizes)), bounds=metric.bounds)
    scale = suitable(drawn.mean)
    notes = (
        metric.unit if metric.unit != "1" else "",
        metric.weighting,
        a_step(sizes.tolist(), metric.level),
        band_words([drawn], metric, without="○" if len(drawn.mean) <= FEW else "without one"),
        scale.word,
        drawn.note,
    )
    figure = canvas(f"{metric.name} <i>{gap}</i>", notes, theme=theme, height=height, lines=2)
    if not np.isfinite(values).any():
        return _without_values(figure, values, metric, theme)
    colour = theme.gaps[gap]
    shown = _axis(figure, drawn, scale, limits, reach_of_zeros(metric))
    add_limits(figure, limits, scale, shown, theme)
    figure.add_traces(around(drawn, scale, shown[0], colour))
    _add_line(figure, drawn, scale, metric, colour)
    _add_infinities(figure, steps, values, shown, theme)
    add_events(figure, events, theme)
    step_axis(figure, steps)
    tell_steps(figure)
    return figure


def gap_words(gap: str) -> str:
    """The gap with its two policies, later minus earlier.

    >>> gap_words("mismatch")
    'mismatch (old − rollout)'
    """
    earlier, later = GAPS[gap]
    return f"{gap} ({later} − {earlier})"


def _axis(
    figure: go.Figure, drawn: Thinned, scale: Scale, limits: Sequence[Limit], zeros: float
) -> tuple[float, float]:
    """Sets the value axis so that line, bands and near limits fit; returns its range in axis positions."""
    return fit(figure, reach(scale, [drawn.mean], edges(drawn)), scale, limits, zeros=zeros)


def _add_line(figure: go.Figure, drawn: Thinned, scale: Scale, metric: Metric, colour: str) -> None:
    few = len(drawn.mean) <= FEW
    bounds = np.isnan(drawn.error) & (metric.bound != "")
    hollow = {"symbol": np.where(bounds, "circle-open", "circle"), "line": {"width": np.where(bounds, 1.2, 0.0)}}
    figure.add_scatter(
        x=drawn.middle,
        y=scale.place(drawn.mean),
        **line_and_marks(drawn, 4, all_marked=few),
        line={"color": colour, "width": 1.6},
        marker={"color": colour, **(hollow if bounds.any() else {})},
        name=metric.name,
        customdata=_hover(drawn, metric),
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover(drawn: Thinned, metric: Metric) -> list[str]:
    if drawn.exact:
        pairs = zip(drawn.mean.tolist(), drawn.error.tolist(), strict=True)
        return [measured(metric, mean, None if math.isnan(error) else error) for mean, error in pairs]
    return [
        f"steps {first:.0f}–{last:.0f}: mean {digits(mean)}, from {digits(low)} to {digits(high)}"
        for first, last, low, mean, high in zip(drawn.first, drawn.last, drawn.low, drawn.mean, drawn.high, strict=True)
    ]


def _add_infinities(figure: go.Figure, steps: Floats, values: Floats, shown: tuple[float, float], theme: Theme) -> None:
    """A mark at the edge of the chart at every step whose value is infinite: it is a value, and no line can reach it."""
    low, high = shown
    for infinite, place, word in ((np.isposinf(values), high, "∞"), (np.isneginf(values), low, "−∞")):
        if infinite.any():
            figure.add_scatter(
                x=steps[infinite][:POINTS],
                y=np.full(int(infinite.sum()), place)[:POINTS],
                mode="markers",
                marker={"symbol": "diamond", "size": 7, "color": theme.severity["act"]},
                hovertemplate=f"{word}<extra></extra>",
                cliponaxis=False,
            )


def _without_values(figure: go.Figure, values: Floats, metric: Metric, theme: Theme) -> go.Figure:
    infinite = np.isinf(values).any()
    words = "infinite at every step" if infinite else f"not available, because {metric.absent}"
    return saying(figure, words, theme)
