"""The Metrics page: a chart over the steps for each metric, of one run or of several."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from ratioscope.ingest.analysis.copy_facts import judged_first
from ratioscope.metrics.metric import Metric

from ....figures.drawing.along import Along
from ....figures.drawing.lines import AxisType
from ....figures.html.key import key_of_runs
from ....pages.logged_metrics import logged_among
from ....pages.scope import Scope
from ....pages.view import CacheRequest, View, figure_request
from ....presentation.escape import streamlit_label as label
from ....presentation.metric_places import in_words, metrics_at
from ....presentation.metric_topics import of_gap
from ....presentation.run_colours import slots
from ....presentation.run_names import shortened
from ....presentation.slice_names import part_words
from ...model.served_runs import served
from ...panels.charts import appearance, draw, last_appearance
from ...panels.choices import choice, dropdown, several
from ...panels.layout import cells, control_row
from ...panels.logged_numbers import logged_numbers, say_not_logged
from .charts import (
    ChartsKey,
    LineChoices,
    chart_numbers,
    chart_quantiles,
    lacking_runs,
    metric_chart,
    quantile_chart,
    runs_of,
)
from .lines import time_places
from .repetitions import by_key, by_seed, seedless, sharing_keys
from .scatter import scatter_drawer
from .summary_only import say_summary_only

MAIN = "main"
RAW = "none"
HALF_LIVES = (RAW, "2", "5", "10", "20", "50", "100", "200", "500", "1000")
AXES: tuple[AxisType, ...] = ("auto", "linear", "log", "signed-log")
ALONG: dict[str, Along] = {"steps": "step", "tokens": "tokens", "wall time": "time"}
APART, SEEDS = "each by itself", "seeds"


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
    _say_lacking(scope, scope.view.figure(lacking_runs, drawing))
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
        frames = [run.frame for run in view.figure(runs_of, drawing.unthemed)]
        known, with_quantiles = logged_among(view, metrics, drawing.scope.gap, frames), False
        say_not_logged(metrics, known)
        metrics = known
    places = cells(len(metrics) + with_quantiles, prefix)
    for cell, metric in zip(places, metrics, strict=False):
        figure, alt = view.figure(metric_chart, drawing, metric.name)
        with cell:
            draw(figure, f"{prefix}_{metric.name}", alt, numbers=partial(chart_numbers, drawing, metric))
    if with_quantiles:
        figure, alt = view.figure(quantile_chart, drawing)
        with places[-1]:
            draw(figure, "quantiles", alt, numbers=partial(chart_quantiles, drawing))


def prefetch(view: View) -> list[CacheRequest]:
    """Requests for the default charts of the default gap."""
    gap = next(iter(view.of(judged_first)), "")
    if not gap:
        return []
    drawing = ChartsKey(
        Scope(view, gap), (served().name_of(view.path),), LineChoices(None, "auto", "step"), (), last_appearance()
    )
    return [
        *(figure_request(metric_chart, drawing, metric.name) for metric in metrics_at("main", gap)),
        figure_request(quantile_chart, drawing),
    ]
