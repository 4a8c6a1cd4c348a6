"""Two sides laid over each other: the course of a metric, the tails of the weights, and how their steps are graded."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import plotly.graph_objects as go
import polars as pl

from ratioscope.metrics.analysis.unseen_share import unseen_share
from ratioscope.metrics.distribution import Histogram, share_beyond
from ratioscope.metrics.grading.finding import LABELS
from ratioscope.metrics.grading.limits import Limit
from ratioscope.metrics.metric import Metric

from ..presentation.digits import a_step, count, digits, percent
from ..presentation.escape import plotly as escaped
from ..presentation.theme import LIGHT, MARKS, Theme
from ..presentation.value_text import measured
from .drawing.bands import COUNTED, around, band_words, edges, on_hover, reach
from .drawing.canvas import canvas, saying
from .drawing.cells import cells
from .drawing.floats import floats, typical
from .drawing.hover import tell_steps
from .drawing.marks import add_events, add_limits, fit, reach_of_zeros
from .drawing.scale import PLAIN, Scale, suitable
from .drawing.step_axis import fit_labels, step_axis
from .drawing.thinned import Thinned, line_and_marks, thinned_steps
from .drawing.weight_axis import share_axis, weight_axis
from .heat_map import UNITS
from .over_steps import gap_words
from .weights import WEIGHTS

DASHES = ("solid", "dash")
GLYPHS = ("━", "┅")
NAMES = ("A", "B")


@dataclass(frozen=True)
class SideRun:
    """A run's metric frame by step. side: 0 for A, 1 for B."""

    side: int
    name: str
    frame: pl.DataFrame


def courses(
    runs: Sequence[SideRun],
    metric: Metric,
    gap: str,
    *,
    relative: bool = False,
    events: Sequence[tuple[str, pl.DataFrame]] = (),
    limits: Sequence[Limit] = (),
    theme: Theme = LIGHT,
    height: int = 320,
) -> go.Figure:
    """The metric of every run over its steps; relative: over the steps since the first of its range.

    events: whose they are, and columns step, event, note, kind, on the same axis; a row of marks each.
    """
    drawn = [(run, _thinned(run, metric, gap, relative)) for run in runs]
    known = [(run, line) for run, line in drawn if np.isfinite(line.mean).any()]
    banded = len(runs) <= 2
    scale = suitable(np.concatenate([line.mean for _, line in known])) if known else PLAIN
    thin = [f"{NAMES[run.side]}: {line.note}" for run, line in known if line.note]
    notes = (
        "" if metric.unit == "1" else metric.unit,
        metric.weighting,
        *_sizes(runs, metric, gap),
        _sure([line for _, line in known], metric, banded),
        *(thin if banded else ["means of buckets of steps"] if thin else []),
        scale.word,
        _legend([run.side for run in runs], theme, gap),
    )
    figure = canvas(f"{metric.name} <i>{gap}</i>", notes, theme=theme, height=height, lines=2)
    if not known:
        return saying(figure, f"not available on either side, because {metric.absent}", theme)
    areas = [area for _, line in known for area in edges(line)] if banded else []
    found = reach(scale, [line.mean for _, line in known], areas)
    shown = fit(figure, found, scale, limits, zeros=reach_of_zeros(metric))
    add_limits(figure, limits, scale, shown, theme)
    for run, line in known:
        _add_course(figure, run, line, scale, metric, shown[0] if banded else None, theme, gap)
    for row, (side, happened) in enumerate(events):
        add_events(figure, happened, theme, row=row, side=side)
    step_axis(figure, np.concatenate([line.middle for _, line in known]))
    if relative:
        title = {"text": "steps since the first of each range", "standoff": 16}
        figure.update_xaxes(title=title, tickprefix="", unifiedhovertitle={"text": "%{x:d} steps after the first"})
        fit_labels(figure)
    tell_steps(figure)
    return figure


def survivals(
    parts: tuple[Histogram, Histogram], gap: str, level: str, *, theme: Theme = LIGHT, height: int = 320
) -> go.Figure:
    """The share of weights beyond each weight, of both sides: at or above it right of 1, below it left of 1."""
    sizes = [
        f"N {name} = {count(float(part.counts.sum()), UNITS[level])}" for name, part in zip(NAMES, parts, strict=True)
    ]
    notes = (
        f"{', '.join(sizes)}, {COUNTED}",
        "left of 1: share with weight below w; right: with weight w or more",
        _legend((0, 1), theme, gap),
    )
    title = f"share beyond w = {WEIGHTS[level]} <i>{gap_words(gap)}</i>"
    figure = canvas(title, notes, theme=theme, height=height, lines=2)
    held = [(side, part) for side, part in enumerate(parts) if len(part.counts)]
    if not held:
        return saying(figure, "not available, because neither side has a distribution of this gap", theme)
    grid = cells(np.concatenate([part.buckets for _, part in held]), np.concatenate([part.counts for _, part in held]))
    least = 1.0
    for side, part in held:
        shares = share_beyond(part, part.counts, grid.edges)
        least = min(least, float(shares[shares > 0].min(initial=1.0)))
        figure.add_scatter(
            x=grid.places,
            y=np.log10(np.where(shares > 0, shares, np.nan)),
            mode="lines",
            line={"color": side_colour(side, gap, theme), "width": 1.6, "dash": DASHES[side]},
            name=NAMES[side],
            customdata=[
                f"{NAMES[side]}: {digits(100 * share)} % beyond {digits(_exp(edge))}"
                for share, edge in zip(shares, grid.edges, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
        )
    share_axis(figure, math.floor(math.log10(least) - 0.5))
    weight_axis(figure, grid, [], theme)
    return figure


def graded_shares(shares: Sequence[dict[str, int]], *, theme: Theme = LIGHT, height: int = 150) -> go.Figure:
    """How many of the graded steps of A and of B are healthy, watch and act. shares: severity -> steps, per side."""
    sizes = " · ".join(
        f"N {name} = {count(sum(found.values()), 'step')}" for name, found in zip(NAMES, shares, strict=True)
    )
    figure = canvas("severity of the graded steps, all gaps", (f"{sizes}, {COUNTED}",), theme=theme, height=height)
    if not any(sum(found.values()) for found in shares):
        return saying(figure, "neither side has a graded step", theme)
    for word in LABELS:
        parts = [found.get(word, 0) / max(1, sum(found.values())) for found in shares]
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
                f"{name}: {MARKS[word]} {word}, {found.get(word, 0):,} of {count(sum(found.values()), 'step')}"
                for name, found in zip(NAMES, shares, strict=True)
            ],
            hovertemplate="%{customdata}<extra></extra>",
            name=word,
        )
    figure.update_layout(barmode="stack", bargap=0.25, uniformtext={"minsize": 10, "mode": "hide"})
    figure.update_yaxes(autorange="reversed", showgrid=False)
    figure.update_xaxes(range=[0, 100], ticksuffix=" %", fixedrange=True)
    return figure


def _share_words(word: str, part: float) -> str:
    """What a bar says, as much as it has room for."""
    if part <= 0.02:
        return ""
    return (
        f"{MARKS[word]} {word} {percent(float(f'{part:.3g}'))}" if part > 0.2 else f"{MARKS[word]} {100 * part:.0f} %"
    )


def side_colour(side: int, gap: str, theme: Theme) -> str:
    """A in the gap's own colour, B in the one across from it; their dashes differ too."""
    return (theme.gaps[gap], theme.less)[side]


def _legend(sides: Sequence[int], theme: Theme, gap: str) -> str:
    counted = [(side, list(sides).count(side)) for side in (0, 1)]
    return "  ".join(
        f'<span style="color:{side_colour(side, gap, theme)}">{GLYPHS[side]} {NAMES[side]}'
        f"{f', {runs} runs' if runs > 1 else ''}</span>"
        for side, runs in counted
        if runs
    )


def _thinned(run: SideRun, metric: Metric, gap: str, relative: bool) -> Thinned:
    steps, values, errors, sizes = (
        floats(run.frame, name)
        for name in ("step", f"{gap}/{metric.name}", f"{gap}/{metric.name}_se", f"{gap}/{metric.level}s")
    )
    found = thinned_steps(steps - steps[0] if relative and len(steps) else steps, values, errors)
    return replace(found, unseen=unseen_share(metric, typical(sizes)), bounds=metric.bounds)


def _sizes(runs: Sequence[SideRun], metric: Metric, gap: str) -> list[str]:
    """How many tokens or sequences a step has on each side."""
    told = []
    for side, name in enumerate(NAMES):
        own = [floats(run.frame, f"{gap}/{metric.level}s") for run in runs if run.side == side]
        size = a_step(np.concatenate([np.zeros(0), *own]).tolist(), metric.level)
        told += [f"{name}: {size}"] if size else []
    return told


def _sure(lines: Sequence[Thinned], metric: Metric, banded: bool) -> str:
    """What is known of the errors of the lines."""
    if banded:
        return band_words(lines, metric)
    return on_hover(line.error for line in lines)


def _add_course(
    figure: go.Figure,
    run: SideRun,
    line: Thinned,
    scale: Scale,
    metric: Metric,
    bottom: float | None,
    theme: Theme,
    gap: str,
) -> None:
    """bottom: where the axis ends, for a line that has its band."""
    colour = side_colour(run.side, gap, theme)
    if bottom is not None:
        figure.add_traces(around(line, scale, bottom, colour))
    name = f"{NAMES[run.side]} {escaped(run.name, 40)}"
    figure.add_scatter(
        x=line.middle,
        y=scale.place(line.mean),
        **line_and_marks(line, 6, all_marked=len(line.mean) <= 3),
        line={"color": colour, "width": 1.2 if bottom is None else 1.8, "dash": DASHES[run.side]},
        marker={"color": colour, "symbol": ("circle", "diamond")[run.side]},
        name=name,
        customdata=[
            f"{name}: {measured(metric, mean, None if math.isnan(error) else error)}"
            for mean, error in zip(line.mean.tolist(), line.error.tolist(), strict=True)
        ],
        hovertemplate="%{customdata}<extra></extra>",
    )


def _exp(log_ratio: float) -> float:
    return math.exp(log_ratio) if log_ratio < 700 else math.inf
