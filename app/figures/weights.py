"""Importance weights: their distribution, their tails, and the weights outside a cap."""

import math
from collections.abc import Sequence

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.metrics.distribution import Histogram, share_beyond, summed_weights

from ..presentation.digits import count, digits
from ..presentation.escape import plotly as escaped
from ..presentation.gap_words import gap_words
from ..presentation.run_names import shortened
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.bands import COUNTED
from .drawing.canvas import canvas, coloured, saying
from .drawing.cells import AxisCells, cells
from .drawing.faint_run import NAME_ROOM
from .drawing.overlay import Overlay
from .drawing.plot import Trace
from .drawing.plotly_objects import go
from .drawing.weight_axis import SPREAD, CapSide, bounds, share_axis, spread, survival, weight_axis, weight_of
from .heat_map import ABSENT, UNITS

WEIGHTS = {"token": "exp(x)", "sequence": "exp(S)", "geometric": "exp(m)"}
BEYOND = "left of 1: share with weight below w; right: with weight w or more"


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
    """The density of tokens (or sequences) along the weight axis, on a log scale; those outside [low, high) have another colour.

    A click on a bar gives (words, its lowest log-ratio, its highest).
    """
    title = f"Distribution of w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = _sheet(part, title, level, (SPREAD,), theme, height)
    if not len(part.counts):
        return saying(figure, ABSENT, theme)
    cap = bounds(low, high)
    grid = _grid([part], cap)
    shares = grid.summed(part.buckets, part.counts.astype(np.float64)) / part.counts.sum()
    density = np.log10(np.where(shares > 0, spread(shares, grid), np.nan))
    floor = math.floor(float(np.nanmin(density)) - 0.3)
    figure.add_bar(
        x=grid.middles,
        y=np.nan_to_num(density - floor),
        base=floor,
        width=grid.heights,
        marker={"color": _colours(grid, cap, gap, theme), "line": {"width": 0}},
        customdata=list(zip(_words(grid, shares), grid.low.tolist(), grid.high.tolist(), strict=True)),
        hovertemplate="%{customdata[0]}<extra></extra>",
        unselected={"marker": {"opacity": 1}},
    )
    figure.update_layout(bargap=0)
    share_axis(figure, floor)
    weight_axis(figure, grid, cap, theme)
    return figure


def weight_survival(
    part: Histogram,
    gap: str,
    level: str = "token",
    *,
    low: float = 0.0,
    high: float = math.inf,
    beside: tuple[str, Histogram] | None = None,
    theme: Theme = LIGHT,
    height: int = 300,
) -> go.Figure:
    """The share of weights beyond each weight: at or above it right of 1, below it left of 1; and their share of the sum.

    beside: name and weights of another run, drawn faintly.
    """
    counted, summed = f"of {UNITS[level]}s", "of the total weight"
    labels = f"{coloured(f'━ {counted}', theme.of_gap(gap))}  {coloured(f'┅ {summed}', theme.muted)}"
    if beside is not None:
        labels += f"  {coloured('┄┄', theme.muted)} {escaped(shortened(beside[0], NAME_ROOM))}"
    title = f"Share beyond w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = _sheet(part, title, level, (BEYOND,), theme, height, key=(labels,))
    if not len(part.counts):
        return saying(figure, ABSENT, theme)
    cap = bounds(low, high)
    both = [part, *([beside[1]] if beside is not None and len(beside[1].counts) else [])]
    grid = _grid(both, cap)
    counts = share_beyond(part, part.counts, grid.edges)
    masses = share_beyond(part, summed_weights(part), grid.edges)
    whole: Overlay = {"color": theme.of_gap(gap), "width": 1.5}
    dotted: Overlay = {"color": theme.muted, "width": 1.5, "dash": "dot"}
    for shares, name, line in ((counts, counted, whole), (masses, summed, dotted)):
        texts = [f"{digits(100 * share)}% {name}" for share in shares]
        figure.add_trace(survival(grid, shares, texts, name=name, line=line))
    if beside is not None and len(beside[1].counts):
        figure.add_trace(_faint(grid, *beside, theme))
    # The share of the sum may sink many decades further, to values that no reader needs.
    share_axis(figure, math.floor(math.log10(counts[counts > 0].min(initial=1.0)) - 0.5))
    weight_axis(figure, grid, cap, theme)
    return figure


def _faint(grid: AxisCells, name: str, part: Histogram, theme: Theme) -> Trace:
    """The shares of another run's weights beyond each weight."""
    shares, shown = share_beyond(part, part.counts, grid.edges), escaped(shortened(name, NAME_ROOM))
    texts = [f"{shown}: {digits(100 * share)}% of its weights" for share in shares]
    line: Overlay = {"color": faded(theme.muted, 0.75), "width": 1.2, "dash": "dash"}
    return survival(grid, shares, texts, name=shown, line=line)


def _sheet(
    part: Histogram, title: str, level: str, notes: Sequence[str], theme: Theme, height: int, key: Sequence[str] = ()
) -> go.Figure:
    size = f"N = {count(float(part.counts.sum()), UNITS[level])}, {COUNTED}" if len(part.counts) else ""
    return canvas(title, notes, theme=theme, height=height, lines=2, made=(size,), key=key)


def _grid(parts: Sequence[Histogram], cap: Sequence[CapSide]) -> AxisCells:
    """The cells of the distributions; the cap cuts no cell."""
    buckets, counts = (np.concatenate([getattr(part, name) for part in parts]) for name in ("buckets", "counts"))
    return cells(buckets, counts, kept=[bound.log_ratio for bound in cap])


def _colours(grid: AxisCells, cap: Sequence[CapSide], gap: str, theme: Theme) -> list[str]:
    outside = np.zeros(len(grid.low), np.bool_)
    for bound in cap:
        rounding = 1e-9 * max(1.0, abs(bound.log_ratio))
        outside |= grid.high <= bound.log_ratio + rounding if bound.low_side else grid.low >= bound.log_ratio - rounding
    return [theme.severity["watch"] if beyond else theme.of_gap(gap) for beyond in outside]


def _words(grid: AxisCells, shares: Floats) -> list[str]:
    return [
        f"w {digits(weight_of(low))} to {digits(weight_of(high))}: {digits(100 * share)}%"
        for low, high, share in zip(grid.low, grid.high, shares, strict=True)
    ]
