"""A slice over the steps, to find the bucket that went bad, and when."""

import math
from collections.abc import Sequence

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.metric import Metric

from ..presentation.digits import count, digits
from ..presentation.theme import LIGHT, Theme
from ..presentation.value_text import value_with_error
from .drawing.along import fit_labels, step_axis
from .drawing.bands import NO_ERROR, ON_HOVER
from .drawing.canvas import canvas, saying
from .drawing.definition import definition
from .drawing.floats import floats
from .drawing.marks import add_events
from .drawing.plotly_objects import go
from .drawing.scale import Scale, suitable
from .slice_bars import short_labels

ROW = 20
HEADROOM = 0.7
"""Rows above the first row: marks of events would not be visible on its cells."""
LOWEST = 0.02
"""Share of cells below the value with the faintest colour on a logarithmic scale: a single cell near zero would take the
contrast from all other cells."""


def slice_heat(
    course: pl.DataFrame,
    parts: pl.DataFrame,
    slice_name: str,
    metric: Metric,
    gap: str,
    title: str,
    *,
    events: pl.DataFrame | None = None,
    theme: Theme = LIGHT,
) -> go.Figure:
    """course: columns step, last (ends of a bucket of steps), the slice, and metrics. parts: the rows of the map, in order."""
    keys = [key for key in parts["key"].to_list() if key is not None]
    height = 150 + ROW * max(4, len(keys))
    name = f"{gap}/{metric.name}"
    here = course.filter(pl.col(slice_name).is_in(keys)) if slice_name in course.columns else course.clear()
    if not np.isfinite(floats(here, name)).any():
        absent = f"not available, because no token of {gap} is in this slice"
        return saying(canvas(title, theme=theme, height=height), absent, theme)
    ends = course.select("step", "last").unique().sort("step")
    columns = _columns(ends["step"].to_list(), ends["last"].to_list())
    at = {first: place for place, (first, _) in enumerate(columns)}
    values, facts = _matrix(here, slice_name, keys, at, metric, gap)
    scale = suitable(values[np.isfinite(values)])
    span = _span(values, scale)
    several_steps = (ends["step"] != ends["last"]).any()
    merged = f"{len(ends):,} columns, statistics of neighbouring steps merged" if several_steps else ""
    several = int(parts["buckets"].sum())
    shown = f"showing {len(keys):,} of {several:,}" if several > len(keys) else ""
    unit = metric.unit if metric.unit != "1" else ""
    size = f"N = {count(float(here[f'{gap}/tokens'].sum()), 'token')}"
    errors = ON_HOVER if f"{name}_se" in here.columns and here[f"{name}_se"].is_not_null().any() else NO_ERROR
    notes, made = (unit, *_colour_words(values, scale, span), shown), (metric.weighting, size, errors, merged)
    figure = canvas(title, notes, theme=theme, height=height, lines=2, made=made, about=definition(metric))
    figure.add_trace(_heat(values, facts, columns, scale, span, theme))
    labels = dict(parts.select("key", "label").drop_nulls("key").rows())
    figure.update_yaxes(
        tickvals=list(range(len(keys))),
        ticktext=short_labels([labels[key] for key in keys]),
        range=[len(keys) - 0.5, -0.5 - HEADROOM],
        showgrid=False,
        fixedrange=True,
    )
    add_events(figure, events, theme)
    step_axis(figure, np.array([columns[0][0], columns[-1][1]], np.float64))
    fit_labels(figure)
    return figure


def _columns(first: Sequence[int], last: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) step of each column. Steps between buckets that are not on record have an empty column of their own."""
    apart = min((later - earlier for earlier, later in zip(last, first[1:], strict=False)), default=1)
    columns: list[tuple[int, int]] = []
    for start, stop in zip(first, last, strict=True):
        if columns and start - columns[-1][1] > apart:
            columns.append((columns[-1][1] + apart, start - apart))
        columns.append((start, stop))
    return columns


def _matrix(
    here: pl.DataFrame, slice_name: str, keys: Sequence[str], at: dict[int, int], metric: Metric, gap: str
) -> tuple[Floats, list[list[str]]]:
    """Values and words of each (bucket, column); NaN and no words if the slice has no token there."""
    rows = {key: place for place, key in enumerate(keys)}
    width = max(at.values()) + 1
    values = np.full((len(keys), width), np.nan)
    facts = [[""] * width for _ in keys]
    error = f"{gap}/{metric.name}_se"
    columns = [slice_name, "step", "last", f"{gap}/{metric.name}", f"{gap}/tokens"]
    known = here.select(*columns, error if error in here.columns else pl.lit(None).alias(error))
    for key, first, last, value, tokens, spread in known.iter_rows():
        if value is not None and not math.isnan(value):
            row, column = rows[key], at[first]
            values[row, column] = value
            steps = f"step {first}" if first == last else f"steps {first}–{last}"
            facts[row][column] = (
                f"{steps}<br>{metric.title} {value_with_error(metric, value, spread)}<br>{count(tokens, 'token')}"
            )
    return values, facts


def _span(values: Floats, scale: Scale) -> tuple[float, float]:
    """The places on the scale of the first and the last colour; equally far from zero if values have both signs."""
    places = scale.place(values)
    finite = places[np.isfinite(places)]
    low, high = float(finite.min()), float(finite.max())
    if _signed(values):
        return -max(abs(low), abs(high)), max(abs(low), abs(high))
    least = float(np.quantile(finite, LOWEST, method="lower")) if scale.logarithmic else low
    return least if least < high else low, high


def _signed(values: Floats) -> bool:
    return bool((values[np.isfinite(values)] < 0).any())


def _colour_words(values: Floats, scale: Scale, span: tuple[float, float]) -> tuple[str, str]:
    """Notes for the chart: the scale of the colours, and the meaning of a cell without one."""
    places = scale.place(values)
    below = int((places < span[0]).sum())
    least = digits(float(values[np.isfinite(places) & (places >= span[0])].min()))
    words = [
        scale.word.replace("axis", "scale"),
        f"{count(below, 'cell')} below {least} {'has' if below == 1 else 'have'} its colour" if below else "",
    ]
    scale_words = "; ".join(word for word in words if word)
    return f"colour: {scale_words}" if scale_words else "", "blank: no value" if np.isnan(values).any() else ""


def _heat(
    values: Floats,
    facts: list[list[str]],
    columns: Sequence[tuple[int, int]],
    scale: Scale,
    span: tuple[float, float],
    theme: Theme,
) -> go.Heatmap:
    low, high = span
    places = np.where(np.isposinf(values), high, scale.place(values))
    stops = (theme.less, theme.background, theme.more) if _signed(values) else theme.counts
    edges = [first - 0.5 for first, _ in columns] + [columns[-1][1] + 0.5]
    ticks = scale.axis(low, high)
    bar = {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 10, "color": theme.muted}, "x": 1.01, "xpad": 2}
    if "tickvals" in ticks:
        bar |= {"tickvals": ticks["tickvals"], "ticktext": ticks["ticktext"]}
    return go.Heatmap(
        z=places.astype(np.float32),
        x=edges,
        y=list(range(len(values))),
        customdata=facts,
        colorscale=[(place / (len(stops) - 1), colour) for place, colour in enumerate(stops)],
        zmin=low,
        zmax=high if high > low else low + 1,
        colorbar=bar,
        hoverongaps=False,
        xgap=1 if len(columns) <= 60 else 0,
        ygap=1,
        hovertemplate="%{y}<br>%{customdata}<extra></extra>",
    )
