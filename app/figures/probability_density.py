"""The probabilities that two policies gave to the same tokens: counts in two dimensions, on the diagonal where they agree."""

from typing import Any

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.ingest.analysis.probability_density import PROBABILITY_EDGES, SURPRISAL_EDGES, Density
from ratioscope.record import sides

from ..presentation.digits import count, digits
from ..presentation.gap_words import gap_words
from ..presentation.theme import LIGHT, Theme
from .drawing.canvas import canvas, saying
from .drawing.overlay import lay_over, words
from .drawing.plot import diagonal
from .drawing.plotly_objects import go

TICKS = (1e-3, 0.01, 0.1, 1.0, 10.0, 100.0)
"""Surprisals with a tick on the log-prob axes, in nats."""


def density_map(density: Density, gap: str, over: str, *, axes: str = "probability", theme: Theme = LIGHT) -> go.Figure:
    """Counts by the earlier policy's probability (across) and the later's (up), colour their logarithm.

    over: the steps, in words. axes: probability or log-prob.
    """
    earlier, later = sides(gap)
    exact = "" if density.exact else "an estimate: each kept row is weighted by the inverse of its chance to be kept"
    aside = f"{count(density.set_aside, 'token')} set aside (NaN)" if density.set_aside else ""
    above = f"{count(density.above, 'log-prob')} above 0 counted at 0" if density.above else ""
    size = f"N = {count(float(density.probability.sum()), 'token')}"
    colour = "colour: log of counts, every token counted" if density.exact else "colour: log of counts"
    what = "probability" if axes == "probability" else "log-prob"
    title = f"{later} against {earlier} {what} <i>{gap_words(gap)}</i>"
    notes = (over, colour, exact, aside, above)
    figure = canvas(title, notes, theme=theme, height=460, lines=2, made=(size,))
    if not density.tokens:
        absent = f"not available, because no token of these steps has log-probs of both {earlier} and {later}"
        return saying(figure, absent, theme)
    counts, places, ranges = _probabilities(density) if axes == "probability" else _logprobs(density)
    with np.errstate(divide="ignore"):
        shown = np.where(counts > 0, np.log10(counts), np.nan)
    stops = [(at / (len(theme.counts) - 2), colour) for at, colour in enumerate(theme.counts[1:])]
    top = float(np.nanmax(shown))
    map_of_counts = go.Heatmap(
        z=shown.astype(np.float32),
        x=places,
        y=places,
        customdata=_facts(counts, ranges, earlier, later),
        colorscale=stops,
        zmin=0,
        zmax=max(top, 0.5),
        hoverongaps=False,
        hovertemplate="%{customdata}<extra></extra>",
        colorbar=_colour_bar(top, theme),
    )
    low, high = float(places[0]), float(places[-1])
    figure.add_traces([map_of_counts, diagonal(low, high, theme.text, "equal")])
    _label(figure, axes, earlier, later, low, high)
    equal = words(
        "equal", theme.muted, size=10, x=(low + high) / 2, y=(low + high) / 2, xanchor="left", yanchor="top", xshift=6
    )
    return lay_over(figure, texts=[equal])


def _colour_bar(top: float, theme: Theme) -> dict[str, object]:
    small = {"color": theme.muted, "size": 10}
    powers = list(range(int(top) + 1))
    ticks = {"tickvals": powers, "ticktext": [f"{10**power:,}" for power in powers], "tickfont": small}
    return {**ticks, "title": {"text": "tokens", "font": small}, "thickness": 8, "len": 0.9, "outlinewidth": 0}


def _probabilities(density: Density) -> tuple[Floats, Floats, list[str]]:
    edges = PROBABILITY_EDGES
    ranges = [f"{digits(a)} to {digits(b)}" for a, b in zip(edges[:-1], edges[1:], strict=True)]
    return density.probability, edges, ranges


def _logprobs(density: Density) -> tuple[Floats, Floats, list[str]]:
    """The map with log-probs ascending, certain tokens at the upper right end."""
    logarithms = np.log10(SURPRISAL_EDGES[1:-1])
    step = logarithms[1] - logarithms[0]
    places = -np.concatenate([[logarithms[0] - step], logarithms, [logarithms[-1] + step]])[::-1]
    ranges = [f"−{digits(b)} to −{digits(a)}" for a, b in zip(SURPRISAL_EDGES[:-1], SURPRISAL_EDGES[1:], strict=True)]
    held = density.surprisal.sum(axis=0) + density.surprisal.sum(axis=1)
    last = int(np.flatnonzero(held)[-1]) + 1
    counts = density.surprisal[:last, :last][::-1, ::-1]
    return counts, places[len(places) - 1 - last :], ranges[:last][::-1]


def _facts(counts: Floats, ranges: list[str], earlier: str, later: str) -> list[list[str]]:
    return [
        [
            f"{count(float(n), 'token')}<br>{earlier} {ranges[across]}<br>{later} {ranges[up]}" if n else ""
            for across, n in enumerate(row)
        ]
        for up, row in enumerate(counts)
    ]


def _label(figure: go.Figure, axes: str, earlier: str, later: str, low: float, high: float) -> None:
    settings: dict[str, Any] = {"range": [low, high], "constrain": "domain"}
    if axes != "probability":
        settings |= {
            "tickvals": [-float(np.log10(tick)) for tick in TICKS],
            "ticktext": [f"−{digits(tick)}" for tick in TICKS],
        }
    word = "probability" if axes == "probability" else "log-prob, nats"
    figure.update_xaxes(**settings, title={"text": f"{earlier} {word}"})
    figure.update_yaxes(**settings, title={"text": f"{later} {word}"}, showgrid=False)
