"""Lines of a metric: a row per step of a run or of a group of runs, the same on a grid, and the notes about both."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.metrics.analysis.over_steps import unseen_share
from ratioscope.metrics.metric import Metric

from ...presentation.digits import a_step, count
from ...presentation.escape import plotly as escaped
from ...presentation.run_names import MARKS, shortened
from ...presentation.theme import Theme
from .bands import ERROR_OPACITY, Area, band_words, edges, on_hover
from .canvas import canvas, coloured
from .definition import definition, metric_head
from .floats import floats, typical
from .plotly_objects import go
from .scale import LOGARITHMIC, PLAIN, Scale, signed_log, suitable
from .thinning import LineBuckets, broken, grid, gridded

AxisType = Literal["auto", "linear", "log", "signed-log"]
CELLS, LEAST_CELLS, SHARED_CELLS = 400, 125, 1000
"""Points of an only line; the least points of each of several lines; points of all lines together."""
LEGEND_ROOM = 24
BANDED = 3
"""More lines than this have no bands of errors or extremes: they would hide one another. A group always has its band."""


@dataclass(frozen=True)
class Line:
    """A run, or a group of runs: a row per step."""

    name: str
    slot: int | None
    """The slot of its colour and symbol; None for the only line of a chart."""
    steps: Floats
    x: Floats
    """The places of the steps along the axis, ascending."""
    values: Floats
    """The metric at each step; NaN where it is not available."""
    errors: Floats
    """The standard error of each value; NaN if it is not known."""
    smooth: Floats | None = None
    """The smoothed values."""
    low: Floats | None = None
    """The smallest value over the runs of a group."""
    high: Floats | None = None
    """The largest value over the runs of a group."""
    runs: int = 1
    size: float = math.nan
    """Tokens or sequences a step."""
    unseen: float = 0.0
    """As in LineBuckets."""
    bounds: tuple[float, float] = (-math.inf, math.inf)
    """As in LineBuckets."""

    @property
    def is_group(self) -> bool:
        return self.low is not None

    def bounded(self, drawn: LineBuckets) -> LineBuckets:
        """Its buckets, with the bounds of the metric."""
        return replace(drawn, unseen=self.unseen, bounds=self.bounds)


def line_of(frame: pl.DataFrame, metric: Metric, gap: str) -> Line:
    """The metric over the steps of a frame with a row per step; NaN at each step if the frame lacks the metric."""
    column = f"{gap}/{metric.name}"
    steps, values, errors = (floats(frame, each) for each in ("step", column, f"{column}_se"))
    size = typical(floats(frame, f"{gap}/{metric.level}s"))
    unseen = unseen_share(metric, size)
    return Line("", None, steps, steps, values, errors, size=size, unseen=unseen, bounds=metric.bounds)


@dataclass(frozen=True)
class DrawnLine:
    """A line on the grid."""

    line: Line
    raw: LineBuckets
    """Its values; for a group the extremes are those over its runs."""
    main: LineBuckets
    """The smoothed values, or `raw` without smoothing."""
    banded: bool
    """True if the chart is to show the errors and extremes of single runs."""

    @property
    def areas(self) -> list[Area]:
        """The shaded areas, on the rows of `raw`."""
        if self.line.is_group:
            return [(self.raw.low, self.raw.high, ERROR_OPACITY)]
        return edges(self.raw) if self.banded else []


def on_grid(lines: Sequence[Line]) -> list[DrawnLine]:
    """The lines, thinned by one grid for all."""
    cells = CELLS if len(lines) == 1 else max(LEAST_CELLS, SHARED_CELLS // max(1, len(lines)))
    ends = grid([line.x for line in lines], cells)
    drawn = []
    for line in lines:
        own = line.bounded(gridded(line.x, line.steps, line.values, line.errors, ends))
        raw = broken(_between_runs(line, own), line.steps)
        smooth = None if line.smooth is None else gridded(line.x, line.steps, line.smooth, line.errors, ends)
        main = raw if smooth is None else broken(smooth, line.steps)
        drawn.append(DrawnLine(line, raw, main, len(lines) <= BANDED))
    return drawn


def _between_runs(line: Line, raw: LineBuckets) -> LineBuckets:
    """The rows of a group, with the extremes over its runs instead of those of the mean over steps."""
    if line.low is None or line.high is None:
        return raw
    if raw.exact:
        return replace(raw, low=line.low, high=line.high)
    starts = np.searchsorted(line.steps, raw.first)
    low, high = (np.where(np.isfinite(edge), edge, np.nan) for edge in (line.low, line.high))
    return replace(raw, low=np.fmin.reduceat(low, starts), high=np.fmax.reduceat(high, starts))


def scale_of(axis: AxisType, drawn: Sequence[DrawnLine]) -> tuple[Scale, str]:
    """The chosen scale, and a note on values that it cannot show."""
    values = np.concatenate([part.raw.mean for part in drawn] or [np.zeros(0)])
    values = values[np.isfinite(values)]
    if axis == "linear" or not len(values):
        return PLAIN, ""
    if axis == "log":
        lost = int((values <= 0).sum())
        return LOGARITHMIC, f"{count(lost, 'point')} at or below 0 cannot be shown on a log axis" if lost else ""
    if axis == "signed-log":
        sizes = np.abs(values[values != 0])
        return (signed_log(float(np.median(sizes)) / 4, float(sizes.max())) if len(sizes) else PLAIN), ""
    return suitable(values), ""


def metric_canvas(
    metric: Metric,
    gap: str,
    notes: Sequence[str],
    theme: Theme,
    height: int,
    *,
    made: Sequence[str],
    key: Sequence[str] = (),
) -> go.Figure:
    """An empty figure of a metric: its unit under the title, its weighting and definition behind the ?."""
    unit = metric.unit if metric.unit != "1" else ""
    title, facts = metric_head(metric, gap, theme), (metric.weighting, *made)
    about = definition(metric)
    return canvas(title, (unit, *notes), theme=theme, height=height, lines=2, made=facts, key=key, about=about)


def why_absent(lines: Sequence[Line], metric: Metric) -> str:
    """Why none of the lines has a finite value."""
    infinite = any(np.isinf(line.values).any() for line in lines)
    return "infinite at every step" if infinite else f"not available, because {metric.absent}"


def legend_name(line: Line) -> str:
    """The name in a legend, with the number of runs of a group."""
    return shortened(line.name, LEGEND_ROOM) + (f" ({line.runs} runs)" if line.is_group else "")


def legend(lines: Sequence[Line], theme: Theme) -> list[str]:
    """Name, colour and symbol of each of several lines, as lines of notes."""
    rows: list[str] = []
    used = theme.columns
    for line in lines:
        name = legend_name(line)
        if used + len(name) + 4 > theme.columns:
            rows.append("")
            used = 0
        symbol = coloured(MARKS[line.slot or 0], theme.runs[line.slot or 0])
        rows[-1] += f"{symbol} {escaped(name)}&#160;&#160; "
        used += len(name) + 4
    return rows


def size_words(lines: Sequence[Line], metric: Metric) -> str:
    """Note for the chart: the number of tokens or sequences per step."""
    sizes = [line.size for line in lines if math.isfinite(line.size)]
    if not sizes:
        return ""
    low, high = min(sizes), max(sizes)
    if int(low) == int(high):
        return a_step([high], metric.level)
    return f"N ≈ {count(low)} to {count(high)} {metric.level}s a step (median)"


def what_is_shaded(drawn: Sequence[DrawnLine], metric: Metric) -> tuple[str, ...]:
    """Notes for the chart: what the bands show, then how to read points without a band."""
    groups = [part.line for part in drawn if part.line.is_group]
    if groups:
        runs = " and ".join(sorted({f"{line.runs}" for line in groups}))
        return (f"line: mean over {runs} runs alike; band: smallest to largest",)
    if len(drawn) > BANDED:
        # The hover of a bucket shows its extremes, not its error.
        errors = on_hover(part.raw.error for part in drawn if part.raw.exact)
        return (f"{len(drawn)} runs, without bands; {errors}",)
    return band_words([part.raw for part in drawn], metric)


def thinned_words(drawn: Sequence[DrawnLine]) -> str:
    """Note for the chart: how steps were thinned to points; empty if every step is a point."""
    longest = max((part.raw for part in drawn), key=lambda raw: raw.rows, default=None)
    if longest is None or longest.exact:
        return ""
    of_runs = "" if len(drawn) == 1 else " of the longest"
    shaded = ", min and max shaded" if len(drawn) <= BANDED else ""
    return f"showing {longest.points:,} means of {longest.rows:,} steps{of_runs}{shaded}"
