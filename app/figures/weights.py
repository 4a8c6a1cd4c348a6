"""Importance weights: their distribution, their tails, the weights outside a cap, and both sides of a correction."""

import math
from collections.abc import Sequence

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.metrics.distribution import Histogram, share_beyond, summed_weights

from ..presentation.digits import count, digits, percent
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
    part: Histogram, gap: str, level: str = "token", *, low: float = 0.0, high: float = math.inf, theme: Theme = LIGHT
) -> go.Figure:
    """The density of tokens (or sequences) along the weight axis, on a log scale; those outside [low, high) have another colour.

    A click on a bar gives (words, its lowest log-ratio, its highest).
    """
    title = f"Distribution of w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = _sheet(part, title, level, (SPREAD,), theme, 300)
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
) -> go.Figure:
    """The share of weights beyond each weight: at or above it right of 1, below it left of 1; and their share of the sum.

    beside: name and weights of another run, drawn faintly.
    """
    counted, summed = f"of {UNITS[level]}s", "of the total weight"
    labels = f"{coloured(f'━ {counted}', theme.of_gap(gap))}  {coloured(f'┅ {summed}', theme.muted)}"
    if beside is not None:
        labels += f"  {coloured('┄┄', theme.muted)} {escaped(shortened(beside[0], NAME_ROOM))}"
    title = f"Share beyond w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = _sheet(part, title, level, (BEYOND,), theme, 300, key=(labels,))
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


NAME = 60


def weights_before_after(
    before: Histogram,
    after: Histogram,
    removed: float,
    name: str,
    *,
    place: int = 0,
    unit: str = "token",
    notes: tuple[str, ...] = (),
    theme: Theme = LIGHT,
) -> go.Figure:
    """Shares of the weights, log scale: filled before, a line after. removed: the removed share."""
    size = f"N = {count(float(before.counts.sum()), unit)}, {COUNTED}" if len(before.counts) else ""
    colour = theme.series[place % len(theme.series)]
    legend = f"{coloured('█ before', theme.muted)}  {coloured('━ after', colour)}"
    gone = f"removed {percent(removed)}" if removed > 0 else "nothing removed"
    title = f"Weights before and after <i>{escaped(name, NAME)}</i>"
    figure = canvas(title, (gone, *notes, SPREAD), theme=theme, height=300, lines=2, made=(size,), key=(legend,))
    if not len(before.counts):
        return saying(figure, "not available, because the run has no distribution of these weights", theme)
    buckets = np.union1d(before.buckets, after.buckets).astype(np.int64)
    weight = np.bincount(before.buckets, before.counts, int(buckets.max()) + 1)[buckets]
    grid = cells(buckets, np.maximum(weight, 1).astype(np.int64))
    shares = [_shares(part, grid, float(before.counts.sum())) for part in (before, after)]
    dense = [spread(each, grid) for each in shares]
    floor = math.floor(math.log10(min(each[each > 0].min(initial=1.0) for each in dense)) - 0.3)
    _add_before(figure, grid, dense[0], _hover_texts(grid, shares[0], "before"), floor, theme)
    _add_after(figure, grid, dense[1], _hover_texts(grid, shares[1], "after"), colour)
    share_axis(figure, floor)
    weight_axis(figure, grid, [], theme)
    figure.update_layout(bargap=0)
    return figure


def _shares(part: Histogram, grid: AxisCells, total: float) -> Floats:
    return grid.summed(part.buckets, part.counts.astype(np.float64)) / total


def _add_before(figure: go.Figure, grid: AxisCells, dense: Floats, words: list[str], floor: int, theme: Theme) -> None:
    figure.add_bar(
        x=grid.middles,
        y=np.where(dense > 0, np.log10(np.where(dense > 0, dense, 1.0)) - floor, 0.0),
        base=floor,
        width=grid.heights,
        marker={"color": faded(theme.muted, 0.45), "line": {"width": 0}},
        customdata=words,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _add_after(figure: go.Figure, grid: AxisCells, dense: Floats, words: list[str], colour: str) -> None:
    """An outline that steps from cell to cell and has a gap where no weight is left."""
    heights = np.log10(np.where(dense > 0, dense, np.nan))
    x, y = np.repeat(grid.places, 2)[1:-1], np.repeat(heights, 2)
    figure.add_scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": colour, "width": 1.8},
        customdata=np.repeat(np.array(words, object), 2).tolist(),
        hovertemplate="%{customdata}<extra></extra>",
    )


def _hover_texts(grid: AxisCells, shares: Floats, when: str) -> list[str]:
    return [
        f"{when}, w {digits(weight_of(low))} to {digits(weight_of(high))}: {percent(float(share))}"
        for low, high, share in zip(grid.low, grid.high, shares, strict=True)
    ]
