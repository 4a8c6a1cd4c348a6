"""The distributions of a few steps above each other, on one axis: how the bulk widens and the tails grow."""

from collections.abc import Sequence

import numpy as np

from ratioscope.metrics.distribution import Histogram, quantile

from ..presentation.digits import count, digits, percent
from ..presentation.gap_words import gap_words
from ..presentation.sentence import capital
from ..presentation.theme import LIGHT, Theme, faded
from .drawing.bands import COUNTED
from .drawing.canvas import canvas, saying
from .drawing.cells import AxisCells, common_cells
from .drawing.overlay import Overlay, horizontal_line, lay_over, vertical_line
from .drawing.plotly_objects import go
from .heat_map import AXES, UNITS

OVERLAP = 1.35
"""The height of a ridge's peak, in distances between ridges."""
ROW = 46
"""The height of a ridge in pixels."""
QUANTILES = (0.01, 0.5, 0.99)


def ridgeline(
    parts: Sequence[tuple[int, Histogram]],
    gap: str,
    level: str = "token",
    *,
    theme: Theme = LIGHT,
    marked: int | None = None,
) -> go.Figure:
    """A ridge per (step, histogram), the first on top, each scaled to its own peak. marked: the step with a colour of its own."""
    known = [(step, part) for step, part in parts if len(part.counts)]
    title = f"{capital(AXES[level])} of single steps <i>{gap_words(gap)}</i>"
    height = 110 + ROW * max(3, len(known) + 1)
    if not known:
        absent = "not available, because these steps have no distribution"
        return saying(canvas(title, theme=theme, height=height), absent, theme)
    grid = common_cells([part for _, part in known])
    sizes = sorted(int(part.counts.sum()) for _, part in known)
    size = count(sizes[0], UNITS[level]) if sizes[0] == sizes[-1] else f"{sizes[0]:,} to {sizes[-1]:,} {UNITS[level]}s"
    notes = ("nats", "| p1, median, p99", "each ridge has its own height scale", grid.scale.word)
    made = (f"N = {size} a ridge, {COUNTED}", "quantiles: to the resolution of the histogram")
    figure = canvas(title, notes, theme=theme, height=height, lines=2, made=made)
    places, labels, overlays = [], [], []
    for number, (step, part) in enumerate(known):
        base = float(len(known) - 1 - number)
        colour = theme.of_gap(gap) if step != marked else theme.severity["act"]
        _add_ridge(figure, part, grid, base, colour, step, UNITS[level])
        overlays += _quantile_marks(part, grid, base, theme)
        places.append(base)
        labels.append(f"step {step}")
    figure.update_yaxes(tickvals=places, ticktext=labels, range=[-0.25, len(known) - 1 + OVERLAP + 0.1], showgrid=False)
    figure.update_xaxes(**grid.axis(), title={"text": "nats"})
    lay_over(figure, [horizontal_line(place, theme.grid) for place in places] + overlays)
    if grid.places[0] < 0 < grid.places[-1]:
        lay_over(figure, [vertical_line(0, theme.muted, width=0.7, dash="dot")])
    return figure


def _add_ridge(
    figure: go.Figure, part: Histogram, grid: AxisCells, base: float, colour: str, step: int, noun: str
) -> None:
    counts = grid.summed(part.buckets, part.counts.astype(np.float64))
    density = counts / grid.heights
    tops = base + OVERLAP * density / density.max()
    total = counts.sum()
    texts = [
        f"step {step}: {count(float(n), noun)}, {percent(float(n / total))}<br>x {digits(low)} to {digits(high)}"
        for n, low, high in zip(counts, grid.low, grid.high, strict=True)
    ]
    outline = np.repeat(tops, 2)
    edges = np.concatenate([grid.places[:1], np.repeat(grid.places[1:-1], 2), grid.places[-1:]])
    figure.add_scatter(
        x=np.concatenate([edges, edges[-1:], edges[:1]]),
        y=np.concatenate([outline, [base, base]]),
        mode="lines",
        line={"color": colour, "width": 1},
        fill="toself",
        fillcolor=faded(colour, 0.3),
        hoverinfo="skip",
        name=f"step {step}",
    )
    figure.add_scatter(
        x=grid.middles,
        y=tops,
        mode="markers",
        marker={"opacity": 0, "size": 6},
        customdata=texts,
        hovertemplate="%{customdata}<extra></extra>",
    )


def _quantile_marks(part: Histogram, grid: AxisCells, base: float, theme: Theme) -> list[Overlay]:
    """A short line at each quantile, in the middle of the bucket that holds it."""
    places = [_place(part, q, grid) for q in QUANTILES]
    line = {"color": theme.text, "width": 1.2}
    return [
        {"type": "line", "x0": x, "x1": x, "y0": base - 0.08, "y1": base + 0.16, "line": line, "layer": "above"}
        for x in places
    ]


def _place(part: Histogram, q: float, grid: AxisCells) -> float:
    interval = quantile(part, q)
    ends = np.clip(grid.scale.place(np.array([interval.low, interval.high])), grid.places[0], grid.places[-1])
    return float(ends.mean())
