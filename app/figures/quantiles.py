"""Quantiles of the log-ratios of two parts of a run against each other; on the diagonal both have the same distribution."""

from functools import partial

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.metrics.distribution import Histogram, Interval, quantile

from ..presentation.digits import count, digits, percent
from ..presentation.escape import plotly as escaped
from ..presentation.gap_words import gap_words
from ..presentation.theme import LIGHT, Theme
from .drawing.canvas import canvas, saying
from .drawing.overlay import lay_over, words
from .drawing.plot import diagonal
from .drawing.plotly_objects import go
from .drawing.scale import Scale, padded, suitable
from .heat_map import AXES, UNITS

SHARES = (
    0.0001, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999, 0.9999,
)  # fmt: skip
NAMED = {0.001: "p0.1", 0.01: "p1", 0.1: "p10", 0.5: "median", 0.9: "p90", 0.99: "p99", 0.999: "p99.9"}
QuantilePair = tuple[float, Interval, Interval]
"""(share, its quantile in the first part, its quantile in the second)."""
FEWEST = 5
"""The least number of values beyond a quantile, on its side, for the chart to show it; a convention."""


def quantile_comparison(
    first: Histogram, second: Histogram, names: tuple[str, str], gap: str, level: str = "token", *, theme: Theme = LIGHT
) -> go.Figure:
    """Quantiles of `second` over those of `first`. names: the names of the two parts, unescaped.

    A quantile is known to its bucket of the histogram: each point is a cross over both buckets.
    """
    title = f"Quantiles of {AXES[level]} <i>{gap_words(gap)}</i>"
    sizes = [float(part.counts.sum()) for part in (first, second)]
    notes = ("nats", "on the dotted line both are equal")
    made = (
        *(f"{escaped(name, 30)}: {count(size, UNITS[level])}" for name, size in zip(names, sizes, strict=True)),
        f"bars: resolution of the histogram; only quantiles with {FEWEST} or more beyond",
    )
    sheet = partial(canvas, title, theme=theme, height=380, lines=2, made=made)
    shares = [share for share in SHARES if min(share, 1 - share) * min(sizes) >= FEWEST or share == 0.5]
    if not min(sizes):
        return saying(sheet(notes), "not available, because one of the two has no distribution", theme)
    pairs = [(share, quantile(first, share), quantile(second, share)) for share in shares]
    finite = [pair for pair in pairs if np.isfinite([e for part in pair[1:] for e in (part.low, part.high)]).all()]
    if not finite:
        return saying(
            sheet(notes), "not available, because all quantiles lie in the buckets that reach to infinity", theme
        )
    sides = [[a for _, a, _ in finite], [b for _, _, b in finite]]
    scale = suitable([_middle(part) for side in sides for part in side])
    figure = sheet((*notes, scale.word))
    places = [scale.place([_middle(part) for part in side]) for side in sides]
    arms = [_arms(side, scale, middle) for side, middle in zip(sides, places, strict=True)]
    low, high = padded(
        float(min((p - a[0]).min() for p, a in zip(places, arms, strict=True))),
        float(max((p + a[1]).max() for p, a in zip(places, arms, strict=True))),
    )
    crosses = {
        "x": places[0], "y": places[1], "mode": "markers", "marker": {"color": theme.of_gap(gap), "size": 6},
        "error_x": _bars(arms[0], theme), "error_y": _bars(arms[1], theme), "customdata": _hover_texts(finite, names),
        "hovertemplate": "%{customdata}<extra></extra>", "name": "quantiles",
    }  # fmt: skip
    figure.add_traces([diagonal(low, high, theme.muted), go.Scatter(crosses)])
    axis = scale.axis(low, high)
    figure.update_xaxes(**axis, title={"text": escaped(names[0], 40)}, showgrid=True, gridcolor=theme.grid)
    figure.update_yaxes(**axis, title={"text": escaped(names[1], 40)})
    named = [(NAMED[share], *spot) for (share, *_), *spot in zip(finite, *places, strict=True) if share in NAMED]
    texts = [
        words(name, theme.muted, size=10, x=a, y=b, xanchor="left", yanchor="top", xshift=5) for name, a, b in named
    ]
    return lay_over(figure, texts=_apart(texts, high - low))


def _hover_texts(pairs: list[QuantilePair], names: tuple[str, str]) -> list[str]:
    first, second = (escaped(name, 30) for name in names)
    return [f"{percent(share)} lie below<br>{first} {_spelled(a)}<br>{second} {_spelled(b)}" for share, a, b in pairs]


def _apart(texts: list[dict[str, object]], span: float) -> list[dict[str, object]]:
    """The names that do not cover each other, the outermost first."""
    apart: list[dict[str, object]] = []
    for text in sorted(texts, key=lambda text: -abs(float(str(text["y"])))):
        if all(abs(float(str(text["y"])) - float(str(other["y"]))) >= 0.06 * span for other in apart):
            apart.append(text)
    return apart


def _middle(part: Interval) -> float:
    return (part.low + part.high) / 2


def _arms(parts: list[Interval], scale: Scale, middles: Floats) -> tuple[Floats, Floats]:
    """The reach of each bucket below and above its middle, in axis positions."""
    low, high = scale.place([part.low for part in parts]), scale.place([part.high for part in parts])
    return np.nan_to_num(middles - low), np.nan_to_num(high - middles)


def _bars(arms: tuple[Floats, Floats], theme: Theme) -> dict[str, object]:
    return {"type": "data", "array": arms[1], "arrayminus": arms[0], "color": theme.muted, "thickness": 1, "width": 0}


def _spelled(part: Interval) -> str:
    return f"{digits(part.low)} to {digits(part.high)}"
