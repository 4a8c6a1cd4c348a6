"""Importance weights: how they are distributed, how far their tails reach, and what a cap would touch."""

import math
from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go

from ratioscope.metrics.distribution import Histogram

from ..digits import count, digits
from ..theme import LIGHT, Theme, faded
from .canvas import canvas, saying
from .cells import Cells, cells
from .heat_map import UNITS
from .over_steps import gap_words
from .overlay import Overlay, column, lay_over, upright, words
from .scale import Floats, Scale

WEIGHTS = {"token": "exp(x)", "sequence": "exp(S)", "geometric": "exp(m)"}
TICKS = (
    1,
    2,
    0.5,
    10,
    0.1,
    1.2,
    0.8,
    5,
    0.2,
    100,
    0.01,
    1000,
    1e-3,
    1e4,
    1e-4,
    1.05,
    0.95,
    1.01,
    0.99,
    1.001,
    0.999,
    1e6,
    1e-6,
    1e9,
    1e-9,
)
"""Weights worth a tick, the most wanted first."""


def weight_histogram(
    part: Histogram,
    gap: str,
    level: str = "token",
    *,
    low: float = 0.0,
    high: float = math.inf,
    theme: Theme = LIGHT,
    height: int = 300,
) -> go.Figure:
    """Share of tokens (or sequences) per cell of the weight axis, on a log scale; what lies outside [low, high) is marked."""
    figure = _sheet(
        part,
        f"distribution of w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>",
        level,
        ("share a cell, log axis",),
        theme,
        height,
    )
    if not len(part.counts):
        return saying(figure, "no distribution of this gap is on record", theme)
    grid = cells(part.buckets, part.counts)
    shares = grid.summed(part.buckets, part.counts.astype(np.float64)) / part.counts.sum()
    inside = (grid.low >= math.log(low) if low > 0 else np.True_) & (grid.high <= math.log(high) + 1e-12)
    floor = math.floor(math.log10(shares[shares > 0].min()) - 0.3)
    figure.add_bar(
        x=(grid.places[1:] + grid.places[:-1]) / 2,
        y=np.where(shares > 0, np.log10(np.maximum(shares, 1e-300)) - floor, 0),
        base=floor,
        width=grid.heights,
        marker={
            "color": [theme.gaps[gap] if kept else theme.severity["watch"] for kept in inside],
            "line": {"width": 0},
        },
        customdata=[
            f"w {digits(math.exp(a))} to {digits(_exp(b))}: {digits(100 * s)} %"
            for a, b, s in zip(grid.low, grid.high, shares, strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )
    figure.update_layout(bargap=0)
    _share_axis(figure, floor)
    _weight_axis(figure, grid, (low, high), theme)
    return figure


def weight_survival(
    part: Histogram,
    gap: str,
    level: str = "token",
    *,
    low: float = 0.0,
    high: float = math.inf,
    theme: Theme = LIGHT,
    height: int = 300,
) -> go.Figure:
    """The share of weights beyond each weight: at or above it right of 1, below it left of 1; and their share of the sum."""
    figure = _sheet(
        part,
        f"share beyond w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>",
        level,
        ("left of 1: below w, right: from w on",),
        theme,
        height,
    )
    if not len(part.counts):
        return saying(figure, "no distribution of this gap is on record", theme)
    grid = cells(part.buckets, part.counts)
    largest = part.log_sum_weights.max()
    mass = np.exp(part.log_sum_weights - largest) if np.isfinite(largest) else np.zeros(len(part.counts))
    curves = (
        (f"of {UNITS[level]}s", part.counts.astype(np.float64), theme.gaps[gap], "solid"),
        ("of the summed weight", mass, theme.muted, "dot"),
    )
    lowest = 0.0
    for name, amounts, colour, dash in curves:
        beyond = np.log10(np.maximum(_beyond(part, amounts, grid), 1e-300))
        shown = np.where(beyond > -299, beyond, np.nan)
        if name == curves[0][0]:  # the other may sink many decades further, into nothing that anybody needs to read
            lowest = float(np.nanmin(shown, initial=0.0))
        told = [
            f"{digits(100 * 10**share)} % {name} beyond {digits(_exp(edge))}"
            for share, edge in zip(shown, grid.edges, strict=True)
        ]
        figure.add_scatter(
            x=grid.places, y=shown, mode="lines", line={"color": colour, "width": 1.5, "dash": dash}, name=name,
            customdata=told, hovertemplate="%{customdata}<extra></extra>",
        )  # fmt: skip
    labels = "   ".join(
        f'<span style="color:{colour}">{"┅" if dash == "dot" else "━"} {name}</span>'
        for name, _, colour, dash in curves
    )
    lay_over(
        figure,
        texts=[words(labels, theme.muted, x=0.5, xref="paper", xanchor="center", y=0, yref="paper", yanchor="bottom")],
    )
    _share_axis(figure, math.floor(lowest - 0.5))
    _weight_axis(figure, grid, (low, high), theme)
    return figure


def _sheet(part: Histogram, title: str, level: str, notes: Sequence[str], theme: Theme, height: int) -> go.Figure:
    size = f"N = {count(float(part.counts.sum()), UNITS[level])}" if len(part.counts) else ""
    return canvas(title, (size, *notes), theme=theme, height=height)


def _beyond(part: Histogram, amounts: Floats, grid: Cells) -> Floats:
    """At each edge of the cells: the share of the amounts of buckets from there on, or below it where the edge is below 0."""
    edges = grid.edges
    total = float(amounts.sum()) or 1.0
    shares = [amounts[part.high <= edge if edge < 0 else part.low >= edge].sum() / total for edge in edges]
    return np.array(shares, np.float64)


def _exp(log_ratio: float) -> float:
    return math.exp(log_ratio) if log_ratio < 700 else math.inf


def _share_axis(figure: go.Figure, floor: int) -> None:
    powers = list(range(floor, 1))[:: max(1, math.ceil(-floor / 6))]
    figure.update_yaxes(
        range=[floor, 0.15], tickvals=powers, ticktext=[f"{digits(100 * 10.0**power)} %" for power in powers]
    )


def _weight_axis(figure: go.Figure, grid: Cells, cap: tuple[float, float], theme: Theme) -> None:
    """Weights along the log-ratio axis, the bounds of the cap as lines, and what it touches behind a veil."""
    first, last = float(grid.places[0]), float(grid.places[-1])
    bounds = [(low_side, bound) for low_side, bound in zip((True, False), cap, strict=True) if 0 < bound < math.inf]
    places = [float(grid.scale.place(math.log(bound))) for _, bound in bounds]
    room = 0.04 * (last - first)
    shown = min([first, *places]) - room, max([last, *places]) + room
    ticks = _ticks(grid.scale, *shown)
    figure.update_xaxes(
        range=shown,
        tickvals=list(ticks),
        ticktext=[digits(weight) for weight in ticks.values()],
        title={"text": "weight"},
    )
    shapes: list[Overlay] = []
    for (low_side, _), place in zip(bounds, places, strict=True):
        outside = (shown[0], place) if low_side else (place, shown[1])
        shapes.append(column(*outside, faded(theme.severity["watch"], 0.1)))
        shapes.append(upright(place, theme.ink["watch"], width=1.2, layer="above"))
    texts = (_bound_words(*bound, place, shown, theme) for bound, place in zip(bounds, places, strict=True))
    lay_over(figure, shapes, texts)


def _bound_words(low_side: bool, bound: float, place: float, shown: tuple[float, float], theme: Theme) -> Overlay:
    """The bound's name beside its line, on the outer side unless the axis ends there."""
    text = f"{'floor' if low_side else 'cap'} {digits(bound)}"
    share = (place - shown[0]) / (shown[1] - shown[0])
    leftwards = share > 0.12 if low_side else share > 0.88
    side: Overlay = {"xanchor": "right", "xshift": -3} if leftwards else {"xanchor": "left", "xshift": 3}
    return words(text, theme.ink["watch"], x=place, y=1, yref="paper", yanchor="top", **side)


def _ticks(scale: Scale, first: float, last: float) -> dict[float, float]:
    """Axis position -> weight, for the most wanted weights that keep a tenth of the axis between them."""
    found: dict[float, float] = {}
    for weight in TICKS:
        place = float(scale.place(math.log(weight)))
        if first <= place <= last and all(abs(place - other) > (last - first) / 11 for other in found):
            found[place] = weight
    return dict(sorted(found.items()))
