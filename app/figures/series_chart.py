"""Several series over the steps in one chart, each with its colour, dash and mark, and the key with their names."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.arrays import Floats

from ..presentation.digits import digits
from ..presentation.escape import html as escaped_html
from ..presentation.escape import plotly as escaped
from ..presentation.theme import FONT, LIGHT, Theme
from .drawing.along import axis_along
from .drawing.bands import ERROR_OPACITY, EXTREMES_OPACITY, shaded
from .drawing.canvas import canvas, saying
from .drawing.marks import add_events, fit
from .drawing.plot import DASHES, SYMBOLS, Pen, Plot, Trace, line_trace, series_colour, swatch
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import LineBuckets, thinned_steps
from .over_steps import FEW

POINTS = 300
"""The most points of a series: half a dozen series share a chart half a page wide."""
NAME = 60


@dataclass(frozen=True)
class Series:
    """One line."""

    name: str
    place: int
    """The place in the key, which gives colour, dash and mark."""
    steps: Floats
    least: Floats
    """The least possible value at each step."""
    most: Floats
    """The greatest possible value at each step."""


def series_of(effects: pl.DataFrame, column: str, name: str, place: int) -> Series:
    """A column over the steps of a frame, with its greatest possible values in `<column>_most`."""
    steps, least, most = (effects[each].to_numpy() for each in ("step", column, f"{column}_most"))
    return Series(name, place, steps.astype(float), least, most)


def series_chart(
    series: Sequence[Series],
    title: str,
    notes: Sequence[str] = (),
    *,
    made: Sequence[str] = (),
    key: Sequence[str] = (),
    events: pl.DataFrame | None = None,
    absent: str = "not available",
    theme: Theme = LIGHT,
    height: int = 250,
) -> go.Figure:
    """The lines over the steps, each thinned by bucket mean with min and max shaded; `absent` if no series has a value."""
    drawn = [(one, _thinned(one)) for one in series if np.isfinite(one.least).any()]
    note = next((parts[0].note for _, parts in drawn if parts[0].note), "")
    intervals = any((one.most - one.least > 1e-12).any() for one, _ in drawn)
    all_notes = (*notes, "band: from the lowest to the highest possible value" if intervals else "")
    values = np.concatenate([np.concatenate([a.mean, b.mean]) for _, (a, b) in drawn]) if drawn else np.empty(0)
    scale = suitable(values)
    figure = canvas(title, (*all_notes, scale.word), theme=theme, height=height, lines=2, made=(*made, note), key=key)
    if not drawn:
        return saying(figure, escaped(absent, 300), theme)
    plot = fit(figure, theme, scale, [values, *(edge for _, (a, b) in drawn for edge in (a.low, b.high))])
    figure.add_traces([trace for one, (low, high) in drawn for trace in _traces(plot, one, low, high)])
    add_events(figure, events, theme)
    axis_along(figure, np.concatenate([one.steps for one, _ in drawn]), "step")
    return figure


def series_key(names: Sequence[str], *, theme: Theme = LIGHT) -> str:
    """The names with their colour, dash and mark, as HTML."""
    root = f"rs-key-{theme.name}"
    style = (
        f".{root}{{display:flex;flex-wrap:wrap;gap:2px 18px;font:13px/1.6 {FONT};color:{theme.text}}}"
        f".{root} span{{display:flex;gap:7px;align-items:center;overflow-wrap:anywhere}}.{root} img{{flex:none}}"
    )
    shown = "".join(f"<span>{swatch(at, theme)}{escaped_html(name, 2 * NAME)}</span>" for at, name in enumerate(names))
    return f'<div class="{root}"><style>{style}</style>{shown}</div>'


def _thinned(one: Series) -> tuple[LineBuckets, LineBuckets]:
    return thinned_steps(one.steps, one.least, points=POINTS), thinned_steps(one.steps, one.most, points=POINTS)


def _traces(plot: Plot, one: Series, low: LineBuckets, high: LineBuckets) -> list[Trace]:
    """low, high: the least and the greatest possible value."""
    dash, symbol = DASHES[one.place % len(DASHES)], SYMBOLS[one.place % len(SYMBOLS)]
    pen = Pen(series_colour(one.place, plot.theme), escaped(one.name, NAME), 1.6, dash, symbol, size=5, marked=FEW)
    areas = [] if low.exact else [(low.low, high.high, EXTREMES_OPACITY)]
    if np.nanmax(high.mean - low.mean, initial=0.0) > 1e-12:
        areas.append((low.mean, high.mean, ERROR_OPACITY))
    name = escaped(one.name, NAME)
    texts = []
    for least, most, bottom, top in zip(low.mean, high.mean, low.low, high.high, strict=True):
        value = digits(least) if most - least <= 1e-12 else f"{digits(least)} to {digits(most)}"
        texts.append(f"{name}: {value}" if low.exact else f"{name}: {value} (from {digits(bottom)} to {digits(top)})")
    trace = line_trace(plot, low, pen, texts)
    trace["y"] = (trace["y"] + plot.scale.place(high.mean)) / 2
    trace["marker"]["maxdisplayed"] = 12 * (len(low.mean) <= FEW)
    return [*shaded(plot, low.middle, areas, pen.colour), trace]
