"""One metric over the steps of a run: its line, its standard error, the limits of its grades, and the events."""

from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.theme import LIGHT, Theme
from .drawing.along import axis_along
from .drawing.bands import band_words, edges, shaded
from .drawing.canvas import saying
from .drawing.faint_run import FaintRun, beside_words, faint, within
from .drawing.lines import line_of, metric_canvas, size_words, why_absent
from .drawing.marks import add_events, fit
from .drawing.overlay import Overlay, lay_over, vertical_line, words
from .drawing.plot import Pen, Trace, infinities, line_trace, value_words
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import POINTS, LineBuckets, thinned_steps

FEW = 80
"""A line of no more points has a mark at each."""


def metric_over_steps(
    frame: pl.DataFrame,
    metric: Metric,
    gap: str,
    *,
    limits: Sequence[Limit] = (),
    events: pl.DataFrame | None = None,
    beside: FaintRun | None = None,
    since: int | None = None,
    free: float = 0.0,
    theme: Theme = LIGHT,
    points: int = POINTS,
    height: int = 250,
) -> go.Figure:
    """The metric's line over `frame` (a metric frame with one row per step), thinned by bucket mean with min and max kept.

    events: columns step, event, note. beside: another run, drawn faint at the steps within those of the frame.
    since: the step from which on the metric is out of bounds. free: the share of the chart's height that the line
    leaves free at the bottom, for a strip. A frame without the metric gives an empty chart with the reason.
    """
    run = line_of(frame, metric, gap)
    drawn = run.bounded(thinned_steps(run.steps, run.values, run.errors, points))
    other = None if beside is None else within(run.steps, line_of(beside.frame, metric, gap), points)
    means = [drawn.mean] if other is None else [drawn.mean, other.mean]
    scale = suitable(np.concatenate(means))
    band, *points_without = band_words([drawn], metric, without="○" if len(drawn.mean) <= FEW else "without one")
    notes, made = (band, scale.word), (size_words([run], metric), *points_without, drawn.note)
    key = (beside_words(beside, other, theme),)
    figure = metric_canvas(metric, gap, notes, theme, height, made=made, key=key)
    if not np.isfinite(run.values).any():
        return saying(figure, why_absent([run], metric), theme)
    areas, pen = edges(drawn), Pen(theme.of_gap(gap), metric.name, size=4, marked=FEW)
    plot = fit(figure, theme, scale, means, areas, limits, metric, free=free)
    trace = line_trace(plot, drawn, pen, value_words(drawn, metric))
    trace["marker"] |= _hollow(drawn, metric)
    act = {"symbol": "diamond", "size": 7, "color": theme.severity["act"]}
    traces = [*shaded(plot, drawn.middle, areas, pen.colour), trace, *infinities(plot, run.steps, run.values, act)]
    if beside is not None and other is not None:
        traces.insert(0, faint(plot, other, beside.name))
    figure.add_traces(traces)
    add_events(figure, events, theme)
    axis_along(figure, run.steps, "step", live=theme.live)
    if since is not None and run.steps[0] < since <= run.steps[-1]:
        side, away = ("left", 4) if since < (run.steps[0] + run.steps[-1]) / 2 else ("right", -4)
        place: Overlay = {"x": since, "xanchor": side, "xshift": away, "y": free, "yref": "paper", "yanchor": "bottom"}
        said = words(f"out of bounds since {since}", theme.ink["act"], bgcolor=theme.background, **place)
        lay_over(figure, [vertical_line(since, theme.ink["act"], width=1.5)], [said])
    return figure


def _hollow(drawn: LineBuckets, metric: Metric) -> Trace:
    """Hollow marks at values that are only bounds."""
    bounds = np.isnan(drawn.error) & (metric.bound != "")
    if not bounds.any():
        return {}
    return {"symbol": np.where(bounds, "circle-open", "circle"), "line": {"width": np.where(bounds, 1.2, 0.0)}}
