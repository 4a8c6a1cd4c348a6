"""The band around a line (its error, or the extremes of the steps behind a point), and the note that explains it."""

from collections.abc import Iterable, Sequence

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.metrics.metric import Metric

from ...presentation.theme import faded
from .plot import Plot, Trace
from .scale import Scale
from .thinning import LineBuckets

ERRORS = 2.0
"""Half width of the band in standard errors; about 95 of 100 repetitions of a step fall inside."""
BAND = f"band: 95% confidence (±{ERRORS:g} standard errors)"
NO_ERROR = "no standard error"
ON_HOVER = "standard errors on hover"
COUNTED = "all counted"
"""The note on a count of everything: nothing was estimated."""
BELOW = 0.3
"""Decades below the lowest point of a line that a logarithmic axis shows at most."""
ERROR_OPACITY, EXTREMES_OPACITY = 0.18, 0.12


Area = tuple[Floats, Floats, float]
"""Its lower end, its upper end, and its opacity. Both ends are NaN where the area has a gap."""


def shaded(plot: Plot, x: Floats, areas: Iterable[Area], colour: str) -> list[Trace]:
    """Traces of the areas. A lower end without a place on the scale lies at the bottom of the plot."""
    return [trace for area in areas for trace in _shaded(plot, x, area, colour)]


def _shaded(plot: Plot, x: Floats, area: Area, colour: str) -> list[Trace]:
    """A closed outline per unbroken stretch: a fill across missing steps would claim values there."""
    low, high, opacity = area
    top, base = plot.scale.place(high), plot.scale.place(low)
    known = np.isfinite(low) & np.isfinite(top)
    base = np.where(np.isfinite(base), base, plot.shown[0])
    ends = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(int)))
    stretches = [np.arange(first, end) for first, end in zip(ends[::2], ends[1::2], strict=True)]
    fill = faded(colour, opacity)
    wide = [stretch for stretch in stretches if len(stretch) > 1]
    lone = [stretch for stretch in stretches if len(stretch) == 1]  # no width to fill
    return [
        {
            "type": "scatter",
            "x": _outlines(x, x, parts),
            "y": _outlines(top, base, parts),
            "mode": "lines",
            "line": {"width": width, "color": fill},
            "fill": "toself",
            "fillcolor": fill,
            "hoverinfo": "skip",
            "showlegend": False,
        }
        for parts, width in ((wide, 0), (lone, 5))
        if parts
    ]


def _outlines(there: Floats, back: Floats, stretches: Sequence[Integers]) -> Floats:
    """Each stretch there and back again, with a gap after it."""
    gap = np.full(1, np.nan)
    return np.concatenate([part for at in stretches for part in (there[at], back[at[::-1]], gap)][:-1])


def edges(drawn: LineBuckets) -> list[Area]:
    """The areas around a line: the extremes of each bucket of several steps, and the errors."""
    extremes = [] if drawn.exact else [(drawn.low, drawn.high, EXTREMES_OPACITY)]
    low, high = interval(drawn.mean, drawn.error, drawn.bounds)
    return [*extremes, (low, np.where(_nothing_counted(drawn), drawn.unseen, high), ERROR_OPACITY)]


def interval(values: Floats, errors: Floats, bounds: tuple[float, float]) -> tuple[Floats, Floats]:
    """The ends of ±ERRORS standard errors around the values, within the bounds of the metric; NaN without an error."""
    return np.clip(values - ERRORS * errors, *bounds), np.clip(values + ERRORS * errors, *bounds)


def _nothing_counted(drawn: LineBuckets) -> Booleans:
    nothing: Booleans = (drawn.mean == 0) & (drawn.error == 0) & (drawn.unseen > 0)
    return nothing


def band_words(drawn: Sequence[LineBuckets], metric: Metric, *, without: str = "without one") -> tuple[str, ...]:
    """Notes for the chart: the meaning of the band, then of points without a band. without: the mark of such points."""
    means, errors = (
        np.concatenate([np.zeros(0), *(getattr(each, name) for each in drawn)]) for name in ("mean", "error")
    )
    known, bound = np.isfinite(errors), metric.bound
    notes = [BAND if known.any() else NO_ERROR]
    if bound and not known[np.isfinite(means)].all():
        hidden = f"{bound} this value, because a few weights dominate"
        notes.append(f"{without}: {hidden}" if known.any() else hidden)
    if any(_nothing_counted(each).any() for each in drawn):
        notes.append("where none was seen, the band reaches to the 95% limit 3/N")
    return tuple(notes)


def on_hover(errors: Iterable[Floats]) -> str:
    """Note for a chart without bands: standard errors are on hover, or there are none."""
    return ON_HOVER if any(np.isfinite(each).any() for each in errors) else NO_ERROR


def reach(scale: Scale, means: Sequence[Floats], areas: Iterable[Area]) -> Floats:
    """The axis positions of lines and of the areas around them, NaN among them.

    On a logarithmic axis areas may reach down to nearly zero: they count down to BELOW the lowest point of a line.
    """
    lines = np.concatenate([scale.place(mean) for mean in means])
    ends = [scale.place(edge) for low, high, _ in areas for edge in (low, high)]
    lowest = float(np.nanmin(lines)) - BELOW if scale.logarithmic and np.isfinite(lines).any() else -np.inf
    places: Floats = np.clip(np.concatenate([lines, *ends]), lowest, None)
    return places
