"""The axes of charts of importance weights: weights along a log-ratio axis, shares up a logarithmic one, the cap over both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Floats

from ...presentation.digits import digits
from ...presentation.theme import Theme, faded
from .cells import AxisCells
from .overlay import Overlay, lay_over, vertical_band, vertical_line, words
from .plot import Trace
from .plotly_objects import go
from .scale import Scale

TICKS = (
    1, 2, 0.5, 10, 0.1, 1.2, 0.8, 5, 0.2, 100, 0.01, 1000, 1e-3, 1e4, 1e-4, 1.05, 0.95, 1.01, 0.99, 1.001, 0.999, 1e6, 1e-6,
    1e9, 1e-9,
)  # fmt: skip
"""Weights with a tick, the most important first."""


SLICES = 60
SPREAD = f"height: share per 1/{SLICES} of the axis (log scale)"


@dataclass(frozen=True)
class CapSide:
    """One side of a cap."""

    weight: float
    low_side: bool
    """True if weights below it are outside, else weights from it on."""

    @property
    def log_ratio(self) -> float:
        return math.log(self.weight)


def bounds(low: float, high: float) -> list[CapSide]:
    """The sides of a cap that are bounds: neither 0 nor infinite."""
    return [CapSide(weight, side) for weight, side in ((low, True), (high, False)) if 0 < weight < math.inf]


def spread(shares: Floats, grid: AxisCells) -> Floats:
    """The shares that cells would have if each were one SLICES-th of the axis wide: cells differ in width."""
    slice_height = (grid.places[-1] - grid.places[0]) / SLICES
    heights: Floats = shares * slice_height / grid.heights
    return heights


def weight_of(log_ratio: float) -> float:
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


def survival(grid: AxisCells, beyond: Floats, texts: Sequence[str], **options: Any) -> Trace:
    """The curve of the shares beyond each edge of the cells; it ends where no share is left. texts: the words of each share."""
    words = [f"{text} beyond {digits(weight_of(edge))}" for text, edge in zip(texts, grid.edges, strict=True)]
    return {
        "type": "scatter",
        "x": grid.places,
        "y": np.log10(np.where(beyond > 0, beyond, np.nan)),
        "mode": "lines",
        "customdata": words,
        "hovertemplate": "%{customdata}<extra></extra>",
        **options,
    }


def share_axis(figure: go.Figure, floor: int) -> None:
    """Sets the y axis to shares from 10^floor to all, as percentages; traces contain their decimal logarithms."""
    powers = list(range(floor, 1))[:: max(1, math.ceil(-floor / 6))]
    figure.update_yaxes(
        range=[floor, 0.15], tickvals=powers, ticktext=[f"{digits(100 * 10.0**power)}%" for power in powers]
    )


def weight_axis(figure: go.Figure, grid: AxisCells, cap: list[CapSide], theme: Theme) -> None:
    """Sets the log-ratio axis of the cells to weights, and adds a line per bound of the cap and a faint area outside."""
    first, last = float(grid.places[0]), float(grid.places[-1])
    places = [float(grid.scale.place(bound.log_ratio)) for bound in cap]
    room = 0.04 * (last - first)
    shown = min([first, *places]) - room, max([last, *places]) + room
    ticks = _ticks(grid.scale, *shown)
    figure.update_xaxes(
        range=shown,
        tickvals=list(ticks),
        ticktext=[digits(weight) for weight in ticks.values()],
        title={"text": "weight (log scale, stretched around 1)" if grid.scale.word else "weight (log scale)"},
    )
    shapes: list[Overlay] = []
    for bound, place in zip(cap, places, strict=True):
        outside = (shown[0], place) if bound.low_side else (place, shown[1])
        shapes.append(vertical_band(*outside, faded(theme.severity["watch"], 0.1)))
        shapes.append(vertical_line(place, theme.ink["watch"], width=1.2, layer="above"))
    texts = (_bound_words(bound, place, shown, theme) for bound, place in zip(cap, places, strict=True))
    lay_over(figure, shapes, texts)


def _bound_words(bound: CapSide, place: float, shown: tuple[float, float], theme: Theme) -> Overlay:
    """The bound's name beside its line: on the outer side, or on the inner side if the axis ends there."""
    text = f"{'lower bound' if bound.low_side else 'cap'} {digits(bound.weight)}"
    share = (place - shown[0]) / (shown[1] - shown[0])
    leftwards = share > 0.12 if bound.low_side else share > 0.88
    side: Overlay = {"xanchor": "right", "xshift": -3} if leftwards else {"xanchor": "left", "xshift": 3}
    return words(text, theme.ink["watch"], x=place, y=1, yref="paper", yanchor="top", **side)


def _ticks(scale: Scale, first: float, last: float) -> dict[float, float]:
    """Axis position -> weight, for the most important weights with a tenth of the axis between them."""
    ticks: dict[float, float] = {}
    for weight in TICKS:
        place = float(scale.place(math.log(weight)))
        if first <= place <= last and all(abs(place - other) > (last - first) / 11 for other in ticks):
            ticks[place] = weight
    return dict(sorted(ticks.items()))
