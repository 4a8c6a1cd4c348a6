"""The Metrics page: a chart over the steps for each metric, of one run or of several."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.quantiles import extremes_over_steps, quantiles_over_steps
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import Metric

from ....figures.drawing.along import Along
from ....figures.drawing.lines import AxisType, Line
from ....figures.html.key import key_of_runs
from ....figures.log_ratio_quantiles import log_ratio_quantiles
from ....figures.several_runs import metric_of_runs
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import in_words, metrics_at
from ....presentation.metric_topics import of_gap
from ....presentation.run_colours import slots
from ....presentation.run_names import shortened
from ....presentation.slice_names import part_words
from ....presentation.theme import THEMES, ThemeName
from ...model.scope import Scope
from ...model.served_runs import served
from ...model.view import CacheRequest, View, asked_gap, figure_request, metrics_of
from ...panels.charts import appearance, draw, last_appearance
from ...panels.choices import choice, dropdown, several
from ...panels.layout import cells, control_row
from ...panels.logged_numbers import logged_among, logged_numbers, say_not_logged
from .lines import PlottedRun, lines_of, numbers_of, placed_events, time_places, token_places
from .repetitions import by_key, by_seed, seedless, sharing_keys
from .scatter import scatter_drawer
from .summary_only import say_summary_only

MAIN = "main"
RAW = "none"
HALF_LIVES = (RAW, "2", "5", "10", "20", "50", "100", "200", "500", "1000")
AXES: tuple[AxisType, ...] = ("auto", "linear", "log", "signed-log")
ALONG: dict[str, Along] = {"steps": "step", "tokens": "tokens", "wall time": "time"}
APART, SEEDS = "each by itself", "seeds"

UNREAD = "not available, because statistics on record have no distribution of one part; Distributions reads it from token rows"


@dataclass(frozen=True)
class LineChoices:
    """The reader's choices on how charts are drawn."""

    half_life: float | None
    axis: AxisType
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
    theme: ThemeName

    @property
    def unthemed(self) -> "ChartsKey":
        """The same in one fixed theme, as the key for numbers."""
        return replace(self, theme="light")


def render(scope: Scope) -> None:
    groups = of_gap(scope.gap)
    with control_row("metrics"):
        titles = _titles(list(groups))
        singles = _singles([metric.name for metrics in groups.values() for metric in metrics])
    with control_row("drawn"):
        choices = _choices(scope)
        grouped = _grouped(scope)
    served_runs = served()
    names = tuple(served_runs.name_of(view.path) for view in (scope.view, *scope.others))
    drawing = ChartsKey(scope, names, choices, tuple(grouped.items()), appearance().name)
    say_summary_only(scope.view)
    _say_lacking(scope, scope.view.figure(_lacking, drawing))
    _key(names, grouped)
    main = MAIN in titles or not (titles or singles)
    if main:
        _charts(drawing, metrics_at("main", scope.gap), MAIN, with_quantiles=True)
    for title, metrics in groups.items():
        if title in titles:
            st.subheader(title, anchor=False)
            _charts(drawing, metrics, title, with_quantiles=title == "tails" and not main)
    alone = [metric for metrics in groups.values() for metric in metrics if metric.name in singles]
    if alone:
        if titles:
            st.subheader("picked metrics", anchor=False)
        _charts(drawing, alone, "one")
    logged_numbers(scope.view, scope.others, scope.range)
    scatter_drawer(scope)


def _titles(groups: Sequence[str]) -> list[str]:
    options = [MAIN, *groups]
    chosen = st.pills(
        "metric groups", options, selection_mode="multi", default=[MAIN], key="groups", bind="query-params", wrap=True
    )
    return [title for title in options if title in chosen]


def _singles(names: Sequence[str]) -> list[str]:
    return several("pick metrics", names, "metric", shown=in_words, placeholder="choose any", width=340)


def _choices(scope: Scope) -> LineChoices:
    smooth = st.select_slider(
        "smoothing (half-life in steps)", HALF_LIVES, value=RAW, key="smooth", bind="query-params", width=240,
        help="Smooths each line by an exponentially weighted mean over earlier steps. A step this many steps back counts half. "
        "The raw values stay visible behind the line.",
    )  # fmt: skip
    axis = choice("y axis", AXES, "axis", help="auto: linear, unless a linear axis would hide the small values")
    along = [word for word in ALONG if word != "wall time" or scope.view.of(time_places) is not None]
    return LineChoices(None if smooth in (RAW, None) else float(smooth), axis, ALONG[choice("x axis", along, "along")])


def _grouped(scope: Scope) -> dict[str, str]:
    """Run -> group; empty if runs are drawn one by one."""
    if not scope.others:
        return {}
    served_runs = served()
    configs = {served_runs.name_of(view.path): _config(view) for view in (scope.view, *scope.others)}
    names = list(configs)
    ways = [APART]
    if len({seedless(name) for name in names}) < len(names):
        ways.append(SEEDS)
    ways += sharing_keys(configs)
    way = dropdown(
        "group runs by", ways, "group", width=220, shown=lambda key: shortened(key, 40),
        help="Draws runs as one line if they differ only in their seed, or share a configuration value: their mean, with a band "
        "from the smallest to the largest run.",
    )  # fmt: skip
    if way == SEEDS:
        return by_seed(names)
    return by_key(configs, way) if way in ways[1:] else {}


def _config(view: View) -> dict[str, Any]:
    config = view.run.info.get("config")
    return config if isinstance(config, dict) else {}


def _say_lacking(scope: Scope, lacking: Sequence[str]) -> None:
    """Names the chosen runs that the charts do not show, with the reason."""
    if lacking:
        names = ", ".join(label(shortened(name)) for name in lacking)
        only = f" with {label(part_words(scope.only))}" if scope.only else ""
        st.caption(
            f":material/info: not shown, because they have no {scope.gap} at these steps{only}, or no position on this x"
            f" axis: {names}"
        )


def _key(names: Sequence[str], groups: dict[str, str]) -> None:
    """The key of colours and symbols with full run names, and the members of each group."""
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(groups.get(name, name), []).append(name)
    if len(names) > 1:
        st.html(key_of_runs(members, slots(members) if len(members) > 1 else {}, theme=appearance()))


def _charts(drawing: ChartsKey, metrics: Sequence[Metric], prefix: str, *, with_quantiles: bool = False) -> None:
    view = drawing.scope.view
    if view.run.no_tokens:
        frames = [run.frame for run in view.figure(_runs, drawing.unthemed)]
        known, with_quantiles = logged_among(view, metrics, drawing.scope.gap, frames), False
        say_not_logged(metrics, known)
        metrics = known
    places = cells(len(metrics) + with_quantiles, prefix)
    for cell, metric in zip(places, metrics, strict=False):
        figure, alt = view.figure(_chart, drawing, metric.name)
        with cell:
            draw(figure, f"{prefix}_{metric.name}", alt, numbers=partial(_numbers, drawing, metric))
    if with_quantiles:
        figure, alt = view.figure(_quantile_chart, drawing)
        with places[-1]:
            draw(figure, "quantiles", alt, numbers=partial(_quantiles_of, drawing))


def _runs(drawing: ChartsKey) -> tuple[PlottedRun, ...]:
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


def _lacking(drawing: ChartsKey) -> tuple[str, ...]:
    """Names of the runs without a value of the gap."""
    tokens = f"{drawing.scope.gap}/tokens"
    return tuple(
        shown.name
        for shown in drawing.scope.view.figure(_runs, drawing.unthemed)
        if tokens not in shown.frame.columns or shown.frame.is_empty()
    )


def _lines(drawing: ChartsKey, metric: Metric) -> list[Line]:
    runs = drawing.scope.view.figure(_runs, drawing.unthemed)
    return lines_of(runs, metric, drawing.scope.gap, groups=dict(drawing.groups), half_life=drawing.choices.half_life)


def _numbers(drawing: ChartsKey, metric: Metric) -> pl.DataFrame:
    return numbers_of(_lines(drawing, metric), metric, drawing.scope.gap)


def _chart(drawing: ChartsKey, name: str) -> tuple[go.Figure, str]:
    """The chart of a metric, and its description."""
    scope, choices, metric = drawing.scope, drawing.choices, BY_NAME[name]
    lines = _lines(drawing, metric)
    front = scope.view.figure(_runs, drawing.unthemed)[0]
    figure = metric_of_runs(
        lines,
        metric,
        scope.gap,
        axis=choices.axis,
        along=choices.along,
        half_life=choices.half_life,
        limits=scope.limits(metric),
        events=placed_events(scope.view.events(), front, choices.along),
        notes=_notes(drawing),
        beside=scope.beside,
        theme=THEMES[drawing.theme],
    )
    names = ", ".join(line.name for line in lines)
    return figure, f"{scope.gap} {metric.name} of {shortened(names, 120) or 'no run'}"


def _notes(drawing: ChartsKey) -> list[str]:
    scope = drawing.scope
    of_first = f"events from {shortened(drawing.names[0])}" if scope.others else ""
    only = f"only {part_words(scope.only)}" if scope.only else ""
    return [note for note in (only, of_first) if note]


def _quantile_chart(drawing: ChartsKey) -> tuple[go.Figure, str]:
    """The quantile bands of the page's own run: bands of several runs would hide one another."""
    scope, choices = drawing.scope, drawing.choices
    frame, front = _quantiles_of(drawing), scope.view.figure(_runs, drawing.unthemed)[0]
    middles = ((frame["first"] + frame["last"]) / 2).to_numpy() if len(frame) else np.zeros(0)
    figure = log_ratio_quantiles(
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
        theme=THEMES[drawing.theme],
    )
    return figure, f"Quantiles of the {scope.gap} log-ratio over the steps"


def _quantiles_of(drawing: ChartsKey) -> pl.DataFrame:
    scope = drawing.scope
    if scope.only is None:
        return scope.view.of(_quantile_frame, scope.gap, scope.range)
    return _quantile_rows(scope.course(), scope.distribution("token"), scope.gap) if scope.read else pl.DataFrame()


def prefetch(view: View) -> list[CacheRequest]:
    """Requests for the default charts of the default gap."""
    gap = next(iter(view.run.gaps), "")
    if not gap:
        return []
    drawing = ChartsKey(
        Scope(view, gap), (served().name_of(view.path),), LineChoices(None, "auto", "step"), (), last_appearance()
    )
    return [
        *(figure_request(_chart, drawing, metric.name) for metric in metrics_at("main", gap)),
        figure_request(_quantile_chart, drawing),
    ]


def _quantile_frame(run: Run, gap: str, steps: range) -> pl.DataFrame:
    """The quantiles and extremes of these steps."""
    return _quantile_rows(metrics_of(run, ("step",), steps, *asked_gap(gap)), run.distribution("token", gap), gap)


def _quantile_rows(metrics: pl.DataFrame, distribution: pl.DataFrame, gap: str) -> pl.DataFrame:
    """The quantiles and extremes of the steps of a metric frame, from the distribution of the same tokens."""
    extremes = extremes_over_steps(metrics, gap).drop_nulls()
    if not extremes.columns:
        return pl.DataFrame()
    return quantiles_over_steps(distribution.filter(pl.col("step").is_in(extremes["step"].implode())), extremes)
