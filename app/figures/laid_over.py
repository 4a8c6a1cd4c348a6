"""Several series over the steps in one chart, told apart by colour and by dash or mark, and the key that names them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ..presentation.digits import digits
from ..presentation.escape import html as escaped_html
from ..presentation.escape import plotly as escaped
from ..presentation.theme import FONT, LIGHT, Theme
from .drawing.bands import ERROR_OPACITY, EXTREMES_OPACITY, shaded
from .drawing.canvas import canvas, saying
from .drawing.hover import tell_steps
from .drawing.marks import add_events, fit
from .drawing.scale import Floats, Scale, suitable
from .drawing.series_pens import DASHES, SYMBOLS, series_colour, swatch
from .drawing.step_axis import step_axis
from .drawing.thinned import Thinned, line_and_marks, thinned_steps
from .over_steps import FEW

POINTS = 300
"""Of a series: half a dozen of them share a chart half a page wide."""
NAME = 60


@dataclass(frozen=True)
class Series:
    """One line. least, most: where they differ, the value lies in between. place: its colour, dash and mark."""

    name: str
    place: int
    steps: Floats
    least: Floats
    most: Floats


def laid_over(
    series: Sequence[Series],
    title: str,
    notes: Sequence[str] = (),
    *,
    events: pl.DataFrame | None = None,
    absent: str = "not available",
    theme: Theme = LIGHT,
    height: int = 250,
) -> go.Figure:
    """The lines over the steps, each thinned by bucket mean with min and max shaded. Says `absent` where none has a value."""
    drawn = [(one, _thinned(one)) for one in series if np.isfinite(one.least).any()]
    note = next((parts[0].note for _, parts in drawn if parts[0].note), "")
    intervals = any((one.most - one.least > 1e-12).any() for one, _ in drawn)
    said = (*notes, "band: from the lowest to the highest possible value" if intervals else "", note)
    found = np.concatenate([np.concatenate([a.mean, b.mean]) for _, (a, b) in drawn]) if drawn else np.empty(0)
    scale = suitable(found)
    figure = canvas(title, (*said, scale.word), theme=theme, height=height, lines=2)
    if not drawn:
        return saying(figure, escaped(absent, 300), theme)
    places = scale.place(np.concatenate([found, *(edge for _, (a, b) in drawn for edge in (a.low, b.high))]))
    shown = fit(figure, places, scale, ())
    for one, (low, high) in drawn:
        _add(figure, one, low, high, scale, shown[0], theme)
    add_events(figure, events, theme)
    step_axis(figure, np.concatenate([one.steps for one, _ in drawn]))
    tell_steps(figure)
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


def _thinned(one: Series) -> tuple[Thinned, Thinned]:
    return thinned_steps(one.steps, one.least, points=POINTS), thinned_steps(one.steps, one.most, points=POINTS)


def _add(
    figure: go.Figure, one: Series, low: Thinned, high: Thinned, scale: Scale, bottom: float, theme: Theme
) -> None:
    """low, high: the least and the most that the value can be. bottom: where the axis ends."""
    colour = series_colour(one.place, theme)
    if not low.exact:
        figure.add_traces(shaded(low.middle, low.low, high.high, scale, bottom, colour, EXTREMES_OPACITY))
    if np.nanmax(high.mean - low.mean, initial=0.0) > 1e-12:
        figure.add_traces(shaded(low.middle, low.mean, high.mean, scale, bottom, colour, ERROR_OPACITY))
    few = len(low.mean) <= FEW
    figure.add_scatter(
        x=low.middle,
        y=(scale.place(low.mean) + scale.place(high.mean)) / 2,
        **line_and_marks(low, 5, all_marked=few),
        line={"color": colour, "width": 1.6, "dash": DASHES[one.place % len(DASHES)]},
        marker={"color": colour, "symbol": SYMBOLS[one.place % len(SYMBOLS)], "maxdisplayed": 12 * few},
        name=escaped(one.name, NAME),
        customdata=_told(one, low, high),
        hovertemplate="%{customdata}<extra></extra>",
    )


def _told(one: Series, low: Thinned, high: Thinned) -> list[str]:
    name = escaped(one.name, NAME)
    told = []
    for least, most, bottom, top in zip(low.mean, high.mean, low.low, high.high, strict=True):
        value = digits(least) if most - least <= 1e-12 else f"{digits(least)} to {digits(most)}"
        told.append(f"{name}: {value}" if low.exact else f"{name}: {value} (from {digits(bottom)} to {digits(top)})")
    return told
