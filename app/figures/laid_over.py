"""Several series over the steps in one chart, told apart by colour and by dash or mark, and the key that names them."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ..digits import digits
from ..escape import html as escaped_html
from ..escape import plotly as escaped
from ..theme import FONT, LIGHT, Theme
from .bands import ERROR_OPACITY, EXTREMES_OPACITY, shaded
from .canvas import canvas, saying
from .hover import tell_steps
from .marks import add_events, fit
from .over_steps import FEW, step_axis
from .scale import Floats, Scale, suitable
from .thinned import Thinned, line_and_marks, thinned_steps

DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "solid", "dash")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "hexagon")
STROKES = {
    "solid": "",
    "dash": "7 5",
    "dot": "2 4",
    "dashdot": "7 4 2 4",
    "longdash": "11 5",
    "longdashdot": "11 4 2 4",
}
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
    said = (*notes, "between its least and its most" if intervals else "", note)
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


def swatch(place: int, theme: Theme) -> str:
    """A piece of the line of this place, as an image in HTML."""
    colour, dash = _colour(place, theme), STROKES[DASHES[place % len(DASHES)]]
    mark = _MARKS[SYMBOLS[place % len(SYMBOLS)]]
    svg = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 34 12" fill="{colour}" stroke="{colour}">'
        f'<path d="M0 6H34" stroke-width="2" stroke-dasharray="{dash or "none"}"/><path d="{mark}" stroke-width="1.6"/></svg>'
    )
    return f'<img alt="" width="34" height="12" src="data:image/svg+xml,{quote(svg)}">'


_MARKS = {
    "circle": "M14 6a3 3 0 1 0 6 0a3 3 0 1 0-6 0z",
    "square": "M14 3h6v6h-6z",
    "diamond": "M17 2l4 4l-4 4l-4-4z",
    "triangle-up": "M17 2l4 7h-8z",
    "x": "M14 3l6 6M20 3l-6 6",
    "cross": "M17 2v8M13 6h8",
    "star": "M17 2l1.3 3h3l-2.4 2l1 3l-2.9-1.8l-2.9 1.8l1-3l-2.4-2h3z",
    "hexagon": "M14 6l1.5-3h3l1.5 3l-1.5 3h-3z",
}


def _colour(place: int, theme: Theme) -> str:
    return theme.series[place % len(theme.series)]


def _thinned(one: Series) -> tuple[Thinned, Thinned]:
    return thinned_steps(one.steps, one.least, points=POINTS), thinned_steps(one.steps, one.most, points=POINTS)


def _add(
    figure: go.Figure, one: Series, low: Thinned, high: Thinned, scale: Scale, bottom: float, theme: Theme
) -> None:
    """low, high: the least and the most that the value can be. bottom: where the axis ends."""
    colour = _colour(one.place, theme)
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
