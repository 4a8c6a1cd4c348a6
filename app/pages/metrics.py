"""The Charts page: a chart over the steps for each metric, of one run or of several."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.copies import judged_first
from ratioscope.ingest.analysis.text_search import MOST_CHARACTERS, expression_of
from ratioscope.metrics.metric import Metric
from ratioscope.record import GAPS

from ..blocks import Block, Chart, Charts, Drawer, Heading, Markup, Paragraph, Section, text_table
from ..figures.drawing.along import Along
from ..figures.drawing.lines import AxisType
from ..figures.html.key import key_of_runs
from ..presentation.bias_words import bias_words
from ..presentation.metric_places import in_words, metrics_at, of_gap
from ..presentation.run_names import shortened, slots
from ..presentation.slice_names import part_words
from ..presentation.theme import ThemeName
from .face import Choice, Several, Text
from .logged_numbers import found_numbers, logged_numbers, no_metric, not_logged
from .metric_charts import (
    ChartsKey,
    LineChoices,
    accumulated_chart,
    bias_numbers,
    chart_numbers,
    chart_quantiles,
    gradient_bias_of,
    lacking_runs,
    measured,
    metric_chart,
    metric_label,
    quantile_chart,
    time_places,
)
from .run_groups import SEEDS, by_key, by_seed, flat, seedless, sharing_keys
from .scatter import scatter_blocks
from .scope import Scope
from .scorecard import Score, headlines, score_words, scorecard, scores_of, size_of, titled, value_of, worst_of
from .support import printed as support_printed
from .support import support_section
from .timeline import timeline
from .view import CacheRequest, View, figure_request

MAIN = "main"
RAW = "none"
HALF_LIVES = (RAW, "2", "5", "10", "20", "50", "100", "200", "500", "1000")
AXES: tuple[AxisType, ...] = ("auto", "linear", "log", "signed-log")
ALONG: dict[str, Along] = {"steps": "step", "tokens": "tokens", "wall time": "time"}
APART = "each by itself"
RECORD = (
    "Pages about sequences and tokens need token rows. `ratioscope.attach(trainer, run)` and `Collector(run)` record them "
    "unless the budget is 0."
)
SMOOTHS = (
    "Smooths each line by an exponentially weighted mean over earlier steps. A step this many steps back counts half. "
    "The raw values stay visible behind the line."
)
GROUPS = (
    "Draws runs as one line if they differ only in their seed, or share a configuration value: their mean, with a band "
    "from the smallest to the largest run."
)

FIND = Text(
    "find", "find metrics", placeholder="words, or /regular expression/", width=260, most=MOST_CHARACTERS,
    help="Draws each metric and each number of the trainer whose name has these words, such as ess or /^kl|tail/.",
)  # fmt: skip


def metrics(scope: Scope) -> Iterator[Block]:
    view, face, groups = scope.view, scope.face, of_gap(scope.gap)
    if scope.gap not in (*view.run.gaps, *view.run.reading_gaps):
        absent = Paragraph("not available, because no step has the log-probs of two policies.", "absent")
        yield from no_metric(scope) if view.run.no_tokens else (absent,)
        return
    every = [metric for metrics in groups.values() for metric in metrics]
    with face.row("metrics"):
        titles = face.ask(Several("groups", "metric groups", [MAIN, *groups], look="pills", usual=[MAIN]))
        names = [metric.name for metric in every]
        singles = face.ask(Several("metric", "pick metrics", names, in_words, help="choose any", width=340))
        typed = face.ask(FIND).strip()
    with face.row("drawn"):
        choices = _choices(scope)
        grouped = _grouped(scope)
    runs = tuple(each.name for each in (view, *scope.others))
    drawing = ChartsKey(scope, runs, choices, tuple(grouped.items()))
    yield from _summary_only(view)
    yield from _lacking(drawing)
    yield from _key(runs, grouped)
    if typed:
        yield from _found(drawing, every, typed)
    main = metrics_at("main", scope.gap) if MAIN in titles or not (titles or singles) else ()
    if main:
        yield from _charts(drawing, main, MAIN, with_quantiles=True)
    for title, of_topic in groups.items():
        if title in titles:
            yield Heading(title)
            yield from _charts(drawing, of_topic, title, with_quantiles=title == "tails" and not main)
    alone = [metric for metric in every if metric.name in singles]
    if alone:
        if titles:
            yield Heading("picked metrics")
        yield from _charts(drawing, alone, "one")
    yield from logged_numbers(scope)
    yield from support_section(scope)
    for title in face.unasked([*groups]):
        more = [metric for metric in measured(drawing, groups[title]) if metric not in main]
        words = f"more of {title}" if any(metric in main for metric in groups[title]) else title
        yield from _drawer(words, drawing, more, title)
    for gap in face.unasked([gap for gap in view.run.gaps if gap != scope.gap]):
        other = replace(drawing, scope=replace(scope, gap=gap))
        yield from _drawer(f"{gap} over the steps", other, measured(other, metrics_at("chart", gap)), gap)
    yield Drawer("one metric against another", partial(scatter_blocks, scope), "against")
    yield Drawer("scorecard of the whole run", partial(_scorecard, scope), "scorecard")


def _found(drawing: ChartsKey, every: Sequence[Metric], typed: str) -> Iterator[Block]:
    """A chart of each metric whose name or title fits what was typed, and of each such number of the trainer."""
    yield Heading(f"found: {typed}")
    try:
        expression = expression_of(typed)
    except ConfigError as error:
        yield Paragraph(str(error), "warning")
        return
    names = pl.Series([f"{metric.name} {metric.title}" for metric in every], dtype=pl.String)
    fits = names.str.contains(expression)
    charts = _charts(drawing, [metric for metric, is_fit in zip(every, fits, strict=True) if is_fit], "found")
    found = [*(charts if fits.any() else ()), *found_numbers(drawing.scope, expression)]
    yield from found or [Paragraph("No metric of this gap and no other number of the run has such a name.", "info")]


def _choices(scope: Scope) -> LineChoices:
    ask = scope.face.ask
    smooth = ask(
        Choice("smooth", "smoothing (half-life in steps)", HALF_LIVES, RAW, look="slider", help=SMOOTHS, width=240)
    )
    auto = "auto: linear, unless a linear axis would hide the small values"
    axes: Choice[AxisType] = Choice("axis", "y axis", AXES, AXES[0], look="segments", help=auto)
    axis = ask(axes)
    along = [word for word in ALONG if word != "wall time" or scope.view.of(time_places) is not None]
    place = ask(Choice("along", "x axis", along, along[0], look="segments"))
    return LineChoices(None if smooth == RAW else float(smooth), axis, ALONG[place])


def _grouped(scope: Scope) -> dict[str, str]:
    """Run -> group; empty if runs are drawn one by one."""
    if not scope.others:
        return {}
    configs = {view.name: flat(view.run.info.get("config")) for view in (scope.view, *scope.others)}
    seeds = [SEEDS] if len({seedless(name) for name in configs}) < len(configs) else []
    ways = [APART, *seeds, *sharing_keys(configs)]
    way = scope.face.ask(
        Choice("group", "group runs by", ways, APART, partial(shortened, room=40), help=GROUPS, width=220)
    )
    if way == SEEDS:
        return by_seed([*configs])
    return {} if way == APART else by_key(configs, way)


def _summary_only(view: View) -> Iterator[Block]:
    """Says that a run has statistics only."""
    if view.run.size.rows:
        return
    if reason := view.run.no_tokens:
        note = next((note for note in view.run.notes if note.startswith(reason)), reason)
        yield Paragraph(f"Sequences and tokens are not available, because {note}.", "absent")
        return
    exact = "This run has statistics only. Every number here is exact and covers all tokens, but sequences and tokens"
    yield Paragraph(f"{exact} cannot be shown. {RECORD}", "absent")


def _lacking(drawing: ChartsKey) -> Iterator[Block]:
    """Names the chosen runs that the charts do not show, with the reason."""
    scope = drawing.scope
    if lacking := scope.view.figure(lacking_runs, drawing):
        only = f" with {part_words(scope.only)}" if scope.only else ""
        names = ", ".join(map(shortened, lacking))
        why = f"they have no {scope.gap} at these steps{only}, or no position on this x axis: {names}"
        yield Paragraph(f"not shown, because {why}", "absent")


def _key(names: Sequence[str], groups: Mapping[str, str]) -> Iterator[Block]:
    """The key of colours and symbols with full run names, and the members of each group."""
    members: dict[str, list[str]] = {}
    for name in names:
        members.setdefault(groups.get(name, name), []).append(name)
    if len(names) > 1:
        yield Markup(partial(key_of_runs, members, slots(members) if len(members) > 1 else {}))


def _charts(
    drawing: ChartsKey, metrics: Sequence[Metric], prefix: str, *, with_quantiles: bool = False
) -> Iterator[Block]:
    view = drawing.scope.view
    if view.run.no_tokens:
        known, with_quantiles = measured(drawing, metrics), False
        yield from not_logged(metrics, known)
        metrics = known
    # Metric -> its whole run and worst step in words, on paper: nobody can ask there for the numbers behind a chart.
    shown = _scores_of(drawing.scope) if drawing.scope.face.unasked((drawing.scope.gap,)) else ()
    said = {score.name: score_words(score) for score in shown}
    charts = [
        Chart(
            f"{prefix}_{metric.name}",
            metric_label(drawing, metric.name) + said.get(metric.name, ""),
            metric_chart,
            (drawing, metric.name),
            numbers=partial(chart_numbers, drawing, metric.name),
        )
        for metric in metrics
    ]
    if any(metric.topic == "gradient" for metric in metrics) and drawing.scope.only is None:
        label = f"{drawing.scope.gap} bias in the gradient, added up: {bias_words(gradient_bias_of(drawing))}"
        numbers = partial(bias_numbers, drawing)
        charts.append(Chart(f"{prefix}_accumulated", label, accumulated_chart, (drawing,), numbers=numbers))
    if with_quantiles:
        label = f"Quantiles of the {drawing.scope.gap} log-ratio over the steps"
        charts.append(Chart("quantiles", label, quantile_chart, (drawing,), numbers=partial(chart_quantiles, drawing)))
    yield Charts(tuple(charts))


def _drawer(title: str, drawing: ChartsKey, metrics: Sequence[Metric], prefix: str) -> Iterator[Block]:
    if metrics:
        yield Drawer(f"{title} ({len(metrics)})", partial(_charts, drawing, metrics, prefix))


def _scorecard(scope: Scope) -> Iterator[Block]:
    """The headline metrics over the whole run."""
    rows = [
        (titled(score.name), value_of(score), worst_of(score), size_of(score), score.name)
        for score in headlines(_scores_of(scope))
        if not score.absent
    ]
    titles = ("metric", "whole run", "worst step", "N", "name")
    yield text_table(f"scorecard of {scope.gap}", titles, rows, is_numbers=True)


def _scores_of(scope: Scope) -> list[Score]:
    """The scores of the gap."""
    every = scores_of(scope, () if scope.gap in GAPS else (scope.gap,))
    return [score for score in every if score.gap == scope.gap]


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("scorecard", "Scorecard", partial(scorecard, scope))
    yield Section("timeline", "Timeline", partial(timeline, scope))
    yield from support_printed(scope)


def ahead(view: View, theme: ThemeName) -> list[CacheRequest]:
    """Requests for the default charts of the default gap."""
    gap = next(iter(view.of(judged_first)), "")
    if not gap:
        return []
    drawing = ChartsKey(Scope(view, gap), (view.name,), LineChoices(None, "auto", "step"), ())
    return [
        *(figure_request(metric_chart, drawing, metric.name, theme) for metric in metrics_at("main", gap)),
        figure_request(quantile_chart, drawing, theme),
    ]
