"""Two sides laid over each other: the course of a metric, the tails of the weights, and the grades of their steps."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.metrics.distribution import Histogram, share_beyond
from ratioscope.metrics.grading.finding import LABELS
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.digits import a_step, count, digits, percent
from ..presentation.escape import plotly as escaped
from ..presentation.gap_words import gap_words
from ..presentation.theme import LIGHT, MARKS, Theme
from .drawing.along import axis_along, fit_labels
from .drawing.bands import COUNTED, band_words, edges, on_hover, shaded
from .drawing.canvas import canvas, coloured, saying
from .drawing.cells import common_cells
from .drawing.floats import floats
from .drawing.lines import line_of, metric_canvas
from .drawing.marks import add_events, fit
from .drawing.plot import DASHES, Pen, Plot, Trace, line_trace, value_words
from .drawing.plotly_objects import go
from .drawing.scale import suitable
from .drawing.thinning import LineBuckets, thinned_steps
from .drawing.weight_axis import share_axis, survival, weight_axis
from .heat_map import UNITS
from .weights import BEYOND, WEIGHTS

GLYPHS = ("━", "┅")
NAMES = ("A", "B")


@dataclass(frozen=True)
class SideRun:
    """One run of a side."""

    side: int
    """0 for A, 1 for B."""
    name: str
    frame: pl.DataFrame
    """The metric frame by step."""


def courses(
    runs: Sequence[SideRun],
    metric: Metric,
    gap: str,
    *,
    relative: bool = False,
    events: Sequence[tuple[str, pl.DataFrame]] = (),
    limits: Sequence[Limit] = (),
    theme: Theme = LIGHT,
) -> go.Figure:
    """The metric of every run over its steps; relative: over the steps since the first of its range.

    events: per row of marks the name of its side, and a frame with columns step, event, note, kind.
    """
    drawn = [(run, _thinned(run, metric, gap, relative)) for run in runs]
    known = [(run, line) for run, line in drawn if np.isfinite(line.mean).any()]
    lines = [line for _, line in known]
    banded = len(runs) <= 2
    scale = suitable(np.concatenate([np.zeros(0), *(line.mean for line in lines)]))
    thin = [f"{NAMES[run.side]}: {line.note}" for run, line in known if line.note]
    band, *without = band_words(lines, metric) if banded else (on_hover(line.error for line in lines),)
    thinned = thin if banded else ["means of buckets of steps"] if thin else []
    made = (*_sizes(runs, metric, gap), *without, *thinned)
    key = (_legend([run.side for run in runs], theme, gap),)
    figure = metric_canvas(metric, gap, (band, scale.word), theme, 320, made=made, key=key)
    if not known:
        return saying(figure, f"not available on either side, because {metric.absent}", theme)
    areas = [area for line in lines for area in edges(line)] if banded else []
    plot = fit(figure, theme, scale, [line.mean for line in lines], areas, limits, metric)
    pens = [_pen(run, gap, theme, 1.8 if banded else 1.2) for run, _ in known]
    parts = zip(lines, pens, strict=True)
    figure.add_traces([trace for line, pen in parts for trace in _course(plot, line, pen, metric, banded)])
    for row, (side, happened) in enumerate(events):
        add_events(figure, happened, theme, row=row, side=side)
    axis_along(figure, np.concatenate([line.middle for line in lines]), "step")
    if relative:
        title = {"text": "steps since the first of each range", "standoff": 16}
        figure.update_xaxes(title=title, tickprefix="", unifiedhovertitle={"text": "%{x:d} steps after the first"})
        fit_labels(figure)
    return figure


def survivals(parts: tuple[Histogram, Histogram], gap: str, level: str, *, theme: Theme = LIGHT) -> go.Figure:
    """The share of weights beyond each weight, of both sides: at or above it right of 1, below it left of 1."""
    sizes = [
        f"N {name} = {count(float(part.counts.sum()), UNITS[level])}" for name, part in zip(NAMES, parts, strict=True)
    ]
    made, key = (f"{', '.join(sizes)}, {COUNTED}",), (_legend((0, 1), theme, gap),)
    title = f"Share beyond w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = canvas(title, (BEYOND,), theme=theme, height=320, lines=2, made=made, key=key)
    held = [(side, part) for side, part in enumerate(parts) if len(part.counts)]
    if not held:
        return saying(figure, "not available, because neither side has a distribution of this gap", theme)
    grid = common_cells([part for _, part in held])
    least = 1.0
    for side, part in held:
        shares = share_beyond(part, part.counts, grid.edges)
        least = min(least, float(shares[shares > 0].min(initial=1.0)))
        line = {"color": side_colour(side, gap, theme), "width": 1.6, "dash": DASHES[side]}
        texts = [f"{NAMES[side]}: {digits(100 * share)}%" for share in shares]
        figure.add_trace(survival(grid, shares, texts, name=NAMES[side], line=line))
    share_axis(figure, math.floor(math.log10(least) - 0.5))
    weight_axis(figure, grid, [], theme)
    return figure


def graded_shares(shares: Sequence[dict[str, int]], *, theme: Theme = LIGHT) -> go.Figure:
    """The shares of healthy, watch and act among the graded steps of A and of B. shares: severity -> steps, per side."""
    sizes = " · ".join(
        f"N {name} = {count(sum(steps.values()), 'step')}" for name, steps in zip(NAMES, shares, strict=True)
    )
    title, made = "Severity of the graded steps, all gaps", (f"{sizes}, {COUNTED}",)
    figure = canvas(title, ("share of the steps with each grade",), theme=theme, height=150, made=made)
    if not any(sum(steps.values()) for steps in shares):
        return saying(figure, "neither side has a graded step", theme)
    for word in LABELS:
        parts = [steps.get(word, 0) / max(1, sum(steps.values())) for steps in shares]
        figure.add_bar(
            orientation="h",
            y=list(NAMES),
            x=[100 * part for part in parts],
            marker={"color": theme.severity[word], "line": {"width": 1, "color": theme.background}},
            text=[_share_words(word, part) for part in parts],
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"size": 11, "color": theme.background if word != "healthy" else theme.text},
            customdata=[
                f"{name}: {MARKS[word]} {word}, {steps.get(word, 0):,} of {count(sum(steps.values()), 'step')}"
                for name, steps in zip(NAMES, shares, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            name=word,
        )
    figure.update_layout(barmode="stack", bargap=0.25, uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(range=[0, 100], ticksuffix="%", fixedrange=True)
    return figure


def _share_words(word: str, part: float) -> str:
    """The words in a bar, as many as it has room for."""
    if part <= 0.02:
        return ""
    return f"{MARKS[word]} {word} {percent(float(f'{part:.3g}'))}" if part > 0.2 else f"{MARKS[word]} {100 * part:.0f}%"


def side_colour(side: int, gap: str, theme: Theme) -> str:
    """A has the colour of the gap, B the colour across from it. Their dashes differ too."""
    return (theme.of_gap(gap), theme.less)[side]


def _legend(sides: Sequence[int], theme: Theme, gap: str) -> str:
    counted = [(side, list(sides).count(side)) for side in (0, 1)]
    names = {
        side: f"{GLYPHS[side]} {NAMES[side]}{f', {runs} runs' if runs > 1 else ''}" for side, runs in counted if runs
    }
    return "  ".join(coloured(name, side_colour(side, gap, theme)) for side, name in names.items())


def _thinned(run: SideRun, metric: Metric, gap: str, relative: bool) -> LineBuckets:
    line = line_of(run.frame, metric, gap)
    steps = line.steps - line.steps[0] if relative and len(line.steps) else line.steps
    return line.bounded(thinned_steps(steps, line.values, line.errors))


def _sizes(runs: Sequence[SideRun], metric: Metric, gap: str) -> list[str]:
    """Number of tokens or sequences per step, of each side."""
    sizes = []
    for side, name in enumerate(NAMES):
        own = [floats(run.frame, f"{gap}/{metric.level}s") for run in runs if run.side == side]
        size = a_step(np.concatenate([np.zeros(0), *own]).tolist(), metric.level)
        sizes += [f"{name}: {size}"] if size else []
    return sizes


def _pen(run: SideRun, gap: str, theme: Theme, width: float) -> Pen:
    name, symbol = f"{NAMES[run.side]} {escaped(run.name, 40)}", ("circle", "diamond")[run.side]
    return Pen(side_colour(run.side, gap, theme), name, width, DASHES[run.side], symbol, marked=3)


def _course(plot: Plot, line: LineBuckets, pen: Pen, metric: Metric, banded: bool) -> list[Trace]:
    band = shaded(plot, line.middle, edges(line), pen.colour) if banded else []
    return [*band, line_trace(plot, line, pen, [f"{pen.name}: {text}" for text in value_words(line, metric)])]
