"""The distribution of the weights before a correction and after it, on one axis."""

import math

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.metrics.distribution import Histogram

from ..presentation.digits import count, digits, percent
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.bands import COUNTED
from .drawing.canvas import canvas, coloured, saying
from .drawing.cells import AxisCells, cells
from .drawing.plotly_objects import go
from .drawing.weight_axis import SPREAD, share_axis, spread, weight_axis, weight_of

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
    height: int = 300,
) -> go.Figure:
    """Shares of the weights, log scale: filled before, a line after. removed: the removed share."""
    size = f"N = {count(float(before.counts.sum()), unit)}, {COUNTED}" if len(before.counts) else ""
    colour = theme.series[place % len(theme.series)]
    legend = f"{coloured('█ before', theme.muted)}  {coloured('━ after', colour)}"
    gone = f"removed {percent(removed)}" if removed > 0 else "nothing removed"
    title = f"Weights before and after <i>{escaped(name, NAME)}</i>"
    figure = canvas(title, (gone, *notes, SPREAD), theme=theme, height=height, lines=2, made=(size,), key=(legend,))
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
