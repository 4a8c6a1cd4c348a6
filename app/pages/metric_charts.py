"""The charts of the Charts page: a metric, and the quantiles of log-ratios, over the steps of one run or of several.

The lines of a chart from runs: along steps, tokens or time, smoothed, and merged for groups of runs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl

from ratioscope.arrays import Floats
from ratioscope.ingest.analysis.gradient_bias import GradientBias, gradient_bias
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.over_steps import RunSeries, across, smoothed, unseen_share
from ratioscope.metrics.analysis.quantiles import extremes_over_steps, quantiles_over_steps
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import Metric

from ..figures.accumulated_bias import accumulated_bias
from ..figures.drawing.along import Along
from ..figures.drawing.floats import floats, typical
from ..figures.drawing.lines import AxisType, Line
from ..figures.drawing.plotly_objects import go
from ..figures.log_ratio_quantiles import log_ratio_quantiles
from ..figures.several_runs import metric_of_runs
from ..presentation.bias_words import bias_words
from ..presentation.run_names import shortened, slots
from ..presentation.slice_names import part_words
from ..presentation.theme import THEMES, ThemeName
from .logged_numbers import has_value
from .scope import Scope
from .view import asked_gap, metrics_of

UNREAD = "not available, because statistics on record have no distribution of one part; Distributions reads it from token rows"


@dataclass(frozen=True)
class PlottedRun:
    """One run in a chart of several."""

    name: str
    frame: pl.DataFrame
    """Metrics by step."""
    places: tuple[Floats, Floats] | None = None
    """(steps, their positions on the axis); None if the axis shows the steps themselves."""

    def along(self, steps: Floats) -> Floats:
        """Positions of these steps on the axis, interpolated between known ones."""
        return steps if self.places is None else np.interp(steps, *self.places)


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


def gradient_bias_of(drawing: ChartsKey) -> GradientBias:
    """The bias of the page's own run over the chosen steps."""
    scope = drawing.scope
    return scope.view.of(gradient_bias, scope.gap, scope.steps.chosen(scope.view.steps))


def bias_numbers(drawing: ChartsKey) -> pl.DataFrame:
    """The numbers behind the chart of the accumulated bias."""
    return gradient_bias_of(drawing).course


def accumulated_chart(drawing: ChartsKey, theme: ThemeName) -> go.Figure:
    """The bias of the page's own run in the gradient, added up over its steps."""
    bias, events = gradient_bias_of(drawing), drawing.scope.view.events()
    return accumulated_bias(bias.course, bias.gap, bias_words(bias), events=events, theme=THEMES[theme])


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


def lines_of(
    runs: Sequence[PlottedRun], metric: Metric, gap: str, *, groups: Mapping[str, str], half_life: float | None
) -> list[Line]:
    """One line per run or group that has a value of the metric. half_life: in steps.

    groups: run -> group. A run that is alone in its group is drawn under its own name.
    """
    name = f"{gap}/{metric.name}"
    by_run = {run.name: line for run in runs if (line := _line(run, name, metric)) is not None}
    members: dict[str, list[Line]] = {}
    for run, line in by_run.items():
        members.setdefault(groups.get(run, run), []).append(line)
    known = slots(groups.get(run.name, run.name) for run in runs)
    lines = [
        replace(lines[0], name=group) if len(lines) == 1 else _grouped(group, lines) for group, lines in members.items()
    ]
    coloured = [replace(line, slot=known[line.name] if len(known) > 1 else None) for line in lines]
    if half_life is None:
        return coloured
    return [replace(line, smooth=smoothed(line.steps, line.values, half_life)) for line in coloured]


def numbers_of(lines: Sequence[Line], metric: Metric, gap: str) -> pl.DataFrame:
    """The values of the lines as a table: one row per run or group and step."""
    frames = []
    for line in lines:
        columns: dict[str, Any] = {"step": line.steps.astype(np.int64), f"{gap}/{metric.name}": line.values}
        columns |= {"smallest run": line.low, "largest run": line.high} if line.is_group else {"se": line.errors}
        columns |= {} if line.smooth is None else {"smoothed": line.smooth}
        frame = pl.DataFrame(columns).fill_nan(None).select(pl.lit(line.name).alias("run"), pl.all())
        frames.append(frame)
    return pl.concat(frames, how="diagonal") if frames else pl.DataFrame({"run": []})


def token_places(run: Run, gap: str) -> tuple[Floats, Floats] | None:
    """(steps, cumulative tokens of the gap, the step included), over the whole run."""
    frame = metrics_of(run, ("step",), None, *asked_gap(gap)).sort("step")
    if f"{gap}/tokens" not in frame.columns or not len(frame):
        return None
    tokens = frame[f"{gap}/tokens"].fill_null(0.0).cum_sum()
    return frame["step"].cast(pl.Float64).to_numpy(), tokens.to_numpy()


def time_places(run: Run) -> tuple[Floats, Floats] | None:
    """(steps, seconds from the start of the run to the commit of each); None if fewer than two steps have a time."""
    times = run.times
    if len(times) < 2 or not run.steps:
        return None
    steps = times["step"].cast(pl.Float64).to_numpy()
    seconds = times["time"].dt.epoch("us").to_numpy() / 1e6
    opened = run.writers["opened"].drop_nulls().dt.epoch("us") / 1e6
    began = min(float(seconds.min()), float(opened.min()) if len(opened) else np.inf)  # type: ignore[arg-type]
    # Early steps may lack token rows: their times are interpolated from the start of the run.
    if run.steps[0] < steps[0]:
        steps, seconds = np.append(run.steps[0] - 1.0, steps), np.append(began, seconds)
    return steps, np.maximum.accumulate(seconds - began)


def placed_events(events: pl.DataFrame, run: PlottedRun, along: Along) -> pl.DataFrame:
    """The events with positions on the axis in the column `step`, and their own steps in `at`."""
    if along == "step" or not len(events):
        return events
    known = events.drop_nulls("step")
    places = run.along(known["step"].cast(pl.Float64).to_numpy())
    return known.with_columns(pl.Series("step", places), at=pl.col("step"))


def _line(run: PlottedRun, name: str, metric: Metric) -> Line | None:
    if name not in run.frame.columns or run.frame[name].null_count() == len(run.frame):
        return None
    steps, values, errors = (floats(run.frame, column) for column in ("step", name, f"{name}_se"))
    size = typical(floats(run.frame, f"{name.partition('/')[0]}/{metric.level}s"))
    unseen = unseen_share(metric, size)
    return Line(run.name, None, steps, run.along(steps), values, errors, size=size, unseen=unseen, bounds=metric.bounds)


def _grouped(name: str, lines: Sequence[Line]) -> Line:
    """The mean of the runs at each step with a band from the smallest to the largest; axis positions are means too."""
    spread = across([RunSeries(line.steps, line.values) for line in lines])
    places = across([RunSeries(line.steps, line.x) for line in lines])
    size = float(np.nanmean([line.size for line in lines]))
    return Line(
        name, None, spread.steps, np.maximum.accumulate(places.mean), spread.mean, np.full(len(spread.steps), np.nan),
        low=spread.low, high=spread.high, runs=len(lines), size=size,
    )  # fmt: skip
