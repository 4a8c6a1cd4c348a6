"""The distribution of log-ratios over the steps of a run, from counts: nothing is sampled."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats, Integers

from ..presentation.digits import count, digits, percent
from ..presentation.gap_words import gap_words
from ..presentation.sentence import capital
from ..presentation.theme import LIGHT, Theme
from .drawing.along import step_axis
from .drawing.bands import COUNTED
from .drawing.canvas import canvas, coloured, saying
from .drawing.cells import AxisCells, cells
from .drawing.marks import add_events
from .drawing.overlay import Overlay, horizontal_line, lay_over, vertical_line, words
from .drawing.plotly_objects import go

COLUMNS = 240
DECADES = 4.0
"""Decades below the densest cell within which colours differ. All occupied cells below have the faintest colour."""
CLICKS = 2000
"""The most cells that take clicks."""
DRAWN = 200
"""The most cells that are elements of the page; Plotly finds the others by their places."""
QUANTILES = ((0.01, "p1", "dot"), (0.5, "median", "solid"), (0.99, "p99", "dot"))
ABSENT = "not available, because the run has no distribution of this gap"
UNITS = {"token": "token", "sequence": "sequence", "geometric": "sequence"}
AXES = {"token": "log-ratio x", "sequence": "sum of log-ratios S", "geometric": "mean log-ratio m"}


def log_ratio_heat_map(
    distribution: pl.DataFrame,
    gap: str,
    level: str = "token",
    *,
    events: pl.DataFrame | None = None,
    marked: int | None = None,
    theme: Theme = LIGHT,
    columns: int = COLUMNS,
) -> go.Figure:
    """Steps across, log-ratio up; the colour is the logarithm of the density of tokens (or sequences).

    distribution: columns step, bucket, count, as Run.distribution returns them. If there are more steps than columns,
    the counts of neighbouring steps are added: exact, no step is left out. marked: a step with a line. A click on a cell
    gives (words, step, low, high): the step of its column with most in the cell.
    """
    rows = distribution.filter(pl.col("count") > 0)
    title = f"{capital(AXES[level])} over steps <i>{gap_words(gap)}</i>"
    if rows.is_empty():
        return saying(canvas(title, theme=theme, height=340), ABSENT, theme)
    steps, width, places = _columns(rows, columns)
    recorded = rows["step"].n_unique()
    grid = cells(rows["bucket"].to_numpy().astype(np.int64), rows["count"].to_numpy())
    shown = _Map(_matrix(rows, places, grid, len(steps)), steps, width, grid, UNITS[level])
    per = f"{recorded:,} steps in {len(steps):,} columns, counts added" if recorded > len(steps) else ""
    size = f"N = {count(float(shown.counts.sum()), shown.noun)}"
    heat = _heat(shown, theme)
    notes, made = ("nats", _colour_key(heat, theme), grid.scale.word), (f"{size}, {COUNTED}", per)
    figure = canvas(title, notes, theme=theme, height=340, lines=2, made=made)
    figure.add_trace(heat)
    _add_quantiles(figure, shown, theme)
    if theme.live:
        _add_clicks(figure, shown, _clickable(rows, places, grid, shown.counts))
    figure.update_yaxes(**grid.axis(), showgrid=False)
    if grid.places[0] < 0 < grid.places[-1]:
        lay_over(figure, [horizontal_line(0, theme.muted, width=0.7, dash="dot")])
    if marked is not None:
        lay_over(figure, [vertical_line(marked, theme.primary, width=1.2, layer="above")])
    figure.update_layout(margin={"r": 48})
    add_events(figure, events, theme)
    step_axis(figure, rows["step"].cast(pl.Float64).to_numpy())
    return figure


@dataclass(frozen=True)
class _Map:
    """The counts of the map and their places."""

    counts: Floats
    """Shape (cells, columns)."""
    steps: Floats
    """The middle of each column."""
    width: int
    """Steps per column."""
    grid: AxisCells
    """The cells of the vertical axis."""
    noun: str
    """The unit of a count."""

    @property
    def totals(self) -> Floats:
        """The sum of each column."""
        totals: Floats = self.counts.sum(axis=0)
        return totals


def _colour_key(heat: Any, theme: Theme) -> str:
    """The colours from faint to dense, as a note."""
    blocks = "".join(coloured("█", colour) for colour in theme.counts)
    least = 10.0 ** (heat.zmin - heat.zmax)
    below = "≤ " if np.nanmin(heat.z) < heat.zmin else ""
    return f"colour (log scale): {below}{digits(least, 1)} {blocks} 1 of the fullest cell"


def _columns(rows: pl.DataFrame, columns: int) -> tuple[Floats, int, Integers]:
    """Middle of each column, its width in steps, and the column of each row. Steps not on record stay empty.

    Distances are unsigned: between two steps of 64 bits lie up to 2^64.
    """
    steps = rows["step"].to_numpy().astype(np.int64)
    first = int(steps.min())
    since = steps.view(np.uint64) - np.uint64(first % (1 << 64))
    apart = int(np.gcd.reduce(np.diff(np.unique(since)))) or 1  # a trainer may log every tenth step
    width = apart * max(1, -(-(int(since.max()) + 1) // (columns * apart)))
    places = (since // np.uint64(width)).astype(np.int64)
    middles = first + float(width) * np.arange(int(places.max()) + 1) + (width - apart) / 2.0
    return middles.astype(np.float64), width, places


def _matrix(rows: pl.DataFrame, places: Integers, grid: AxisCells, columns: int) -> Floats:
    """(cells, columns) counts."""
    heights = len(grid.low)
    flat = places * heights + grid.owner[rows["bucket"].to_numpy()]
    counts = np.bincount(flat, rows["count"].to_numpy(), columns * heights)
    return counts.astype(np.float64).reshape(columns, heights).T


def _heat(shown: _Map, theme: Theme) -> go.Heatmap:
    counts, totals, steps, grid = shown.counts, shown.totals, shown.steps, shown.grid
    with np.errstate(divide="ignore", invalid="ignore"):
        density = np.log10(counts / totals / grid.heights[:, None])
    density[~np.isfinite(density)] = np.nan
    top = float(np.nanmax(density))
    stops = [(at / (len(theme.counts) - 1), colour) for at, colour in enumerate(theme.counts)]
    ends = (np.broadcast_to(edge[:, None], counts.shape) for edge in (grid.low, grid.high))
    facts = np.stack([counts, 100 * counts / np.maximum(totals, 1), *ends], axis=-1).astype(np.float32)
    return go.Heatmap(
        z=density.astype(np.float32),
        x=np.append(steps - shown.width / 2, steps[-1] + shown.width / 2),
        y=grid.places,
        customdata=facts,
        colorscale=stops,
        zmin=max(top - DECADES, float(np.nanmin(density)) - 0.3),
        zmax=top,
        showscale=False,
        hoverongaps=False,
        hovertemplate=(
            f"step %{{x:.1~f}}<br>%{{customdata[2]:.3g}} to %{{customdata[3]:.3g}} nats<br>"
            f"%{{customdata[0]:,}} {shown.noun}s · %{{customdata[1]:.3g}}%<extra></extra>"
        ),
    )


def _clickable(rows: pl.DataFrame, places: Integers, grid: AxisCells, counts: Floats) -> pl.DataFrame:
    """place, cell, step, count of the occupied cells that take clicks: of more than CLICKS the outermost of each column.

    The step is the one with most in the cell; of equals the first. Only rows of these cells are sorted: a long run has a million.
    """
    place, cell = np.nonzero(counts.T)  # by column, upwards in each
    starts = np.searchsorted(place, place, side="left")
    ends = np.searchsorted(place, place, side="right")
    at = np.arange(len(place))
    chosen = np.lexsort((cell, place, np.minimum(at - starts, ends - 1 - at)))[:CLICKS]
    order = np.full(counts.shape[::-1], -1)
    order[place[chosen], cell[chosen]] = np.arange(len(chosen))
    turn = order[places, grid.owner[rows["bucket"].to_numpy()]]
    known = rows.select("step", "count").with_columns(turn=pl.Series(turn)).filter(pl.col("turn") >= 0)
    most = known.sort("turn", "count", "step", descending=[False, True, False]).unique(
        "turn", keep="first", maintain_order=True
    )
    return most.select("step").with_columns(
        place=place[chosen], cell=cell[chosen], count=counts[cell[chosen], place[chosen]].astype(np.int64)
    )


def _add_clicks(figure: go.Figure, shown: _Map, clickable: pl.DataFrame) -> None:
    """Adds an invisible point in every cell that takes clicks, because a heat map itself takes none."""
    grid, totals = shown.grid, shown.totals
    figure.add_scatter(
        x=shown.steps[clickable["place"].to_numpy()],
        y=grid.middles[clickable["cell"].to_numpy()],
        mode="markers",
        marker={"opacity": 0, "size": 9, "maxdisplayed": DRAWN},
        customdata=[
            [_cell_words(low, high, count(many, shown.noun), many / totals[place]), step, low, high]
            for place, at, step, many in clickable.select("place", "cell", "step", "count").rows()
            for low, high in [(float(grid.low[at]), float(grid.high[at]))]
        ],
        hovertemplate="step %{customdata[1]}<br>%{customdata[0]}<extra></extra>",
        name="cells",
    )


def _cell_words(low: float, high: float, size: str, share: float) -> str:
    return f"{digits(low)} to {digits(high)} nats<br>{size} · {percent(share)}"


def _add_quantiles(figure: go.Figure, shown: _Map, theme: Theme) -> None:
    """Adds lines through the cells of the quantiles."""
    if len(shown.grid.low) < 4:  # a quantile is known only to its cell
        return
    steps, totals, below = shown.steps, shown.totals, np.cumsum(shown.counts, axis=0)
    texts: list[Overlay] = []
    for share, word, dash in QUANTILES:
        at = np.argmax(below >= share * totals, axis=0)
        line = np.where(totals > 0, shown.grid.middles[at], np.nan)
        figure.add_scatter(
            x=steps,
            y=line,
            mode="lines" if len(steps) > 1 else "markers",
            line={"color": theme.text, "width": 1, "dash": dash},
            marker={"color": theme.text, "size": 4},
            hoverinfo="skip",
        )
        end = float(line[np.flatnonzero(totals)[-1]])
        texts.append(words(word, theme.muted, size=10, x=1, xref="paper", xanchor="left", xshift=3, y=end))
    lay_over(figure, texts=texts)
