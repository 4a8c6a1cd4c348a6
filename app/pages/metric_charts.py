"""The charts of the Metrics page: a metric, and the quantiles of log-ratios, over the steps of one run or of several."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.quantiles import extremes_over_steps, quantiles_over_steps
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import Metric

from ..figures.drawing.along import Along
from ..figures.drawing.lines import AxisType, Line
from ..figures.drawing.plotly_objects import go
from ..figures.log_ratio_quantiles import log_ratio_quantiles
from ..figures.several_runs import metric_of_runs
from ..presentation.run_names import shortened
from ..presentation.slice_names import part_words
from ..presentation.theme import THEMES, ThemeName
from .logged_metrics import has_value
from .metric_lines import PlottedRun, lines_of, numbers_of, placed_events, time_places, token_places
from .scope import Scope
from .view import asked_gap, metrics_of

UNREAD = "not available, because statistics on record have no distribution of one part; Distributions reads it from token rows"


@dataclass(frozen=True)
class LineChoices:
    """The reader's choices on how charts are drawn."""

    half_life: float | None
    """Steps back at which a step counts half in the smoothed line; None: not smoothed."""
    axis: AxisType
    """The scale of the vertical axis."""
    along: Along


@dataclass(frozen=True)
class ChartsKey:
    """All inputs of the page's charts, used as a cache key."""

    scope: Scope
    names: tuple[str, ...]
    """Names of the runs, the page's own run first."""
    choices: LineChoices
    groups: tuple[tuple[str, str], ...]
    """(run, group) of runs that are drawn together."""


def runs_of(drawing: ChartsKey) -> tuple[PlottedRun, ...]:
    """The runs of a drawing, the page's own first."""
    scope, along = drawing.scope, drawing.choices.along
    runs = []
    for name, view in zip(drawing.names, (scope.view, *scope.others), strict=True):
        places = None
        if along != "step":
            places = view.of(token_places, scope.gap) if along == "tokens" else view.of(time_places)
        frame = scope.course(view)
        runs.append(PlottedRun(name, frame.clear() if along != "step" and places is None else frame, places))
    return tuple(runs)


def lacking_runs(drawing: ChartsKey) -> tuple[str, ...]:
    """Names of the runs without a value of the gap."""
    tokens = f"{drawing.scope.gap}/tokens"
    return tuple(
        shown.name
        for shown in drawing.scope.view.figure(runs_of, drawing)
        if tokens not in shown.frame.columns or shown.frame.is_empty()
    )


def measured(drawing: ChartsKey, metrics: Sequence[Metric]) -> list[Metric]:
    """Those metrics that have a value in one of the runs."""
    frames = [run.frame for run in drawing.scope.view.figure(runs_of, drawing)]
    return [
        metric for metric in metrics if any(has_value(each, f"{drawing.scope.gap}/{metric.name}") for each in frames)
    ]


def _lines(drawing: ChartsKey, name: str) -> list[Line]:
    runs, groups = drawing.scope.view.figure(runs_of, drawing), dict(drawing.groups)
    return lines_of(runs, BY_NAME[name], drawing.scope.gap, groups=groups, half_life=drawing.choices.half_life)


def chart_numbers(drawing: ChartsKey, name: str) -> pl.DataFrame:
    """The numbers behind the chart of a metric."""
    lines = drawing.scope.view.figure(_lines, drawing, name)
    return numbers_of(lines, BY_NAME[name], drawing.scope.gap)


def metric_label(drawing: ChartsKey, name: str) -> str:
    """The description of the chart of a metric."""
    names = ", ".join(line.name for line in drawing.scope.view.figure(_lines, drawing, name))
    return f"{drawing.scope.gap} {name} of {shortened(names, 120) or 'no run'}"


def metric_chart(drawing: ChartsKey, name: str, theme: ThemeName) -> go.Figure:
    """The chart of a metric."""
    scope, choices, metric = drawing.scope, drawing.choices, BY_NAME[name]
    front = scope.view.figure(runs_of, drawing)[0]
    return metric_of_runs(
        scope.view.figure(_lines, drawing, name),
        metric,
        scope.gap,
        axis=choices.axis,
        along=choices.along,
        half_life=choices.half_life,
        limits=scope.limits(metric),
        events=placed_events(scope.view.events(), front, choices.along),
        notes=_notes(drawing),
        beside=scope.beside,
        theme=THEMES[theme],
    )


def _notes(drawing: ChartsKey) -> list[str]:
    scope = drawing.scope
    of_first = f"events from {shortened(drawing.names[0])}" if scope.others else ""
    only = f"only {part_words(scope.only)}" if scope.only else ""
    return [note for note in (only, of_first) if note]


def quantile_chart(drawing: ChartsKey, theme: ThemeName) -> go.Figure:
    """The quantile bands of the page's own run: bands of several runs would hide one another."""
    scope, choices = drawing.scope, drawing.choices
    frame, front = chart_quantiles(drawing), scope.view.figure(runs_of, drawing)[0]
    middles = ((frame["first"] + frame["last"]) / 2).to_numpy() if len(frame) else np.zeros(0)
    return log_ratio_quantiles(
        frame,
        scope.gap,
        x=front.along(middles),
        axis=choices.axis,
        along=choices.along,
        events=placed_events(scope.view.events(), front, choices.along),
        notes=[
            *([f"only {part_words(scope.only)}"] if scope.only else []),
            *([f"of {shortened(front.name)}"] if scope.others else []),
        ],
        absent=UNREAD if scope.only and not scope.read else None,
        theme=THEMES[theme],
    )


def chart_quantiles(drawing: ChartsKey) -> pl.DataFrame:
    """The numbers behind the chart of quantiles; empty where statistics have none."""
    scope = drawing.scope
    if scope.only is None:
        return scope.view.of(_quantile_frame, scope.gap, scope.range)
    return _quantile_rows(scope.course(), scope.distribution("token"), scope.gap) if scope.read else pl.DataFrame()


def _quantile_frame(run: Run, gap: str, steps: range) -> pl.DataFrame:
    """The quantiles and extremes of these steps."""
    return _quantile_rows(metrics_of(run, ("step",), steps, *asked_gap(gap)), run.distribution("token", gap), gap)


def _quantile_rows(metrics: pl.DataFrame, distribution: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The quantiles and extremes of the steps of a metric frame, from the distribution of the same tokens."""
    extremes = extremes_over_steps(metrics, gap).drop_nulls()
    if not extremes.columns:
        return pl.DataFrame()
    return quantiles_over_steps(distribution.filter(pl.col("step").is_in(extremes["step"].implode())), extremes)
