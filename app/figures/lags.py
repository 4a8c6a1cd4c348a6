"""Version lags over the steps: the gap at each lag, and the share of the tokens with each lag."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric
from ratioscope.metrics.step_holes import holes

from ..presentation.digits import count, percent
from ..presentation.theme import LIGHT, NARROW, Theme, channels
from ..presentation.value_text import value_with_error
from .drawing.along import step_axis
from .drawing.bands import BAND, COUNTED, ERROR_OPACITY, NO_ERROR, edges, interval, shaded
from .drawing.canvas import canvas, saying
from .drawing.definition import definition, metric_head
from .drawing.floats import floats
from .drawing.marks import add_events, fit
from .drawing.plot import DASHES, Pen, line_trace
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import gridded

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "cross", "star", "hexagon", "x", "triangle-down", "pentagon")
A_ROW, ROW = 4, 20
"""Lines in a row of the legend of a narrow window, and the height of a row in pixels."""
NARROW_NAMES = frozenset(narrow.name for narrow in NARROW.values())
HEADROOM = 109
"""The end of the axis of shares, in percent: marks of events would not be visible on its bars."""
ABSENT = "not available, because no token of {} has a known lag"
FEW = 60
"""The most steps with a mark at each point, so that lines do not differ in colour alone."""


def lags_over_steps(
    course: pl.DataFrame,
    metric: Metric,
    gap: str,
    *,
    limits: Sequence[Limit] = (),
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """A line per lag. course: columns step, last, lag, first_lag and metrics, as lag_over_steps returns them."""
    name = f"{gap}/{metric.name}"
    title = metric_head(metric, gap, theme, "by version lag over the steps")
    known = course.filter(pl.col(name).is_finite()) if name in course.columns else course.clear()
    if known.is_empty():
        return saying(canvas(title, theme=theme, height=330), ABSENT.format(gap), theme)
    scale = suitable(known[name])
    unit = metric.unit if metric.unit != "1" else ""
    lags = _lags(known)
    values, errors = floats(known, name), floats(known, f"{name}_se")
    size = f"N = {count(float(np.nansum(floats(known, f'{gap}/tokens'))), 'token')} with a known lag"
    band = BAND if np.isfinite(errors).any() else NO_ERROR
    notes, made = (unit, band, scale.word), (metric.weighting, size, _merged(course))
    figure = canvas(title, notes, theme=theme, height=330, lines=2, made=made, about=definition(metric))
    areas = [(*interval(values, errors, metric.bounds), ERROR_OPACITY)]
    plot = fit(figure, theme, scale, [values], areas, limits, metric)
    few = course["step"].n_unique() <= FEW
    for at, (lag, colour) in enumerate(zip(lags, _colours(len(lags), theme), strict=True)):
        rows = _unbroken(known.filter(pl.col("lag") == lag), course)
        steps, values, errors = (floats(rows, column) for column in ("step", name, f"{name}_se"))
        drawn = replace(gridded(_middles(rows), steps, values, errors, None), bounds=metric.bounds)
        pen = Pen(colour, f"lag {lag}", 1.4, DASHES[at % 4], SYMBOLS[at % len(SYMBOLS)], 7, len(rows) if few else 0)
        texts = [_words(row, metric, name, gap) for row in rows.iter_rows(named=True)]
        figure.add_traces([*shaded(plot, drawn.middle, edges(drawn), colour), line_trace(plot, drawn, pen, texts)])
    _finish(figure, course, events, theme)
    return figure


def lag_shares(
    course: pl.DataFrame, gap: str, *, events: pl.DataFrame | None = None, theme: Theme = LIGHT
) -> go.Figure:
    """The share of the tokens of each step with each lag, as stacked bars."""
    name, title = f"{gap}/tokens", f"Version lags over the steps <i>{gap}</i>"
    known = course.filter(pl.col(name) > 0) if name in course.columns else course.clear()
    if known.is_empty():
        return saying(canvas(title, theme=theme, height=250), ABSENT.format(gap), theme)
    size = f"N = {count(float(known[name].sum()), 'token')}, {COUNTED}"
    figure = canvas(
        title, ("share of the tokens with a known lag",), theme=theme, height=250, lines=2, made=(size, _merged(course))
    )
    parts = known.with_columns(share=pl.col(name) / pl.col(name).sum().over("step"))
    apart = _apart(course)
    for lag, colour in zip(lags := _lags(known), _colours(len(lags), theme), strict=True):
        rows = parts.filter(pl.col("lag") == lag).sort("step")
        words = [
            f"{_steps(row)}<br>lag {lag}: {percent(row['share'])} · {count(row[name], 'token')}"
            for row in rows.iter_rows(named=True)
        ]
        figure.add_bar(
            x=_middles(rows),
            y=(100 * rows["share"]).to_list(),
            width=(rows["last"] - rows["step"] + apart).to_list(),
            marker={"color": colour, "line": {"width": 0}},
            name=f"lag {lag}",
            customdata=words,
            hovertemplate="%{customdata}<extra></extra>",
        )
    figure.update_layout(barmode="stack", bargap=0)
    ticks = [0, 50, 100]
    figure.update_yaxes(range=[0, HEADROOM], tickvals=ticks, ticktext=[f"{tick}%" for tick in ticks], fixedrange=True)
    _finish(figure, course, events, theme)
    return figure


def _finish(figure: go.Figure, course: pl.DataFrame, events: pl.DataFrame | None, theme: Theme) -> None:
    add_events(figure, events, theme)
    step_axis(
        figure, course.select(pl.concat([course["step"], course["last"]])).to_series().cast(pl.Float64).to_numpy()
    )
    legend_below(figure, theme)


def legend_below(figure: go.Figure, theme: Theme = LIGHT) -> None:
    """Adds a legend of the lines under the steps, without the events, which have a line of their own below the chart.

    In a narrow window it has several rows, and the chart is as much taller.
    """
    figure.update_traces(showlegend=False, selector={"name": "events"})
    traces: Any = figure.data
    lines = [trace for trace in traces if trace.showlegend is not False]
    rows = -(-len(lines) // A_ROW) if theme.name in NARROW_NAMES else 1
    more = ROW * (rows - 1)
    place = {"yref": "container", "y": 0, "yanchor": "bottom", "x": 0, "xanchor": "left", "traceorder": "normal"}
    layout: Any = figure.layout
    height = None if layout.height is None else layout.height + more
    figure.update_layout(showlegend=True, legend=place, margin={"b": 70 + more}, height=height)


def _lags(known: pl.DataFrame) -> list[str]:
    return known.select("lag", "first_lag").unique().sort("first_lag")["lag"].to_list()


def _colours(lags: int, theme: Theme) -> list[str]:
    """Different colours along the scale of counts, from near to far, without its faintest, which are not visible as lines."""
    stops = theme.counts[3:]
    places = np.linspace(0, len(stops) - 1, lags) if lags > 1 else [len(stops) - 2.0]
    return [_between(stops[int(place)], stops[math.ceil(place)], place % 1) for place in places]


def _between(one: str, other: str, share: float) -> str:
    mixed = ((1 - share) * a + share * b for a, b in zip(channels(one), channels(other), strict=True))
    return "#" + "".join(f"{round(255 * part):02x}" for part in mixed)


def _unbroken(rows: pl.DataFrame, course: pl.DataFrame) -> pl.DataFrame:
    """The rows of a lag, with null rows at steps without it and between steps that are not on record, so that no line crosses."""
    points = course.select("step", "last").unique().sort("step")
    at = holes(points["step"].to_numpy(), points["last"].to_numpy())
    between = pl.DataFrame({"step": points["last"].gather(at) + 1, "last": points["step"].gather(at + 1) - 1})
    points = pl.concat([points, between]).sort("step")
    return points.join(rows, on=["step", "last"], how="left", maintain_order="left")


def _middles(rows: pl.DataFrame) -> Floats:
    """The places of the rows: the middle between the first and the last step of each."""
    return ((rows["step"] + rows["last"]) / 2).to_numpy()


def _merged(course: pl.DataFrame) -> str:
    several = bool((course["step"] != course["last"]).any())
    return f"{course['step'].n_unique():,} points, statistics of neighbouring steps merged" if several else ""


def _apart(course: pl.DataFrame) -> float:
    ends = course.select("step", "last").unique().sort("step")
    first, last = ends["step"].to_numpy(), ends["last"].to_numpy()
    return float(np.min(first[1:] - last[:-1])) if len(ends) > 1 else 1.0


def _steps(row: dict[str, object]) -> str:
    return f"step {row['step']}" if row["step"] == row["last"] else f"steps {row['step']}–{row['last']}"


def _words(row: dict[str, object], metric: Metric, name: str, gap: str) -> str:
    value, error, tokens = (row.get(column) for column in (name, f"{name}_se", f"{gap}/tokens"))
    if not isinstance(value, float) or not isinstance(tokens, float):
        return ""
    value_text = value_with_error(metric, value, error if isinstance(error, float) else None)
    return f"{_steps(row)}<br>lag {row['lag']}: {metric.title} {value_text}<br>{count(tokens, 'token')}"
