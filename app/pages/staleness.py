"""The Staleness page: the part of the gap that comes from old weights, the update's part, and the settings of both sides."""

from collections.abc import Iterator
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.comparability import ComparedSetting, comparability
from ratioscope.ingest.analysis.slice_over_steps import SINGLE, lag_over_steps, lag_table
from ratioscope.ingest.run import Run
from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.analysis.staleness import decomposition
from ratioscope.metrics.analysis.staleness import staleness as share_of_lag
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.metric import SAMPLED, Metric
from ratioscope.record import GAPS, kin

from ..blocks import Beside, Block, Cards, Chart, Code, Column, Heading, Markup, Paragraph, Table
from ..figures.drawing.head import metric_head
from ..figures.drawing.plotly_objects import go
from ..figures.gap_parts import gap_parts
from ..figures.html.both_sides import both_sides
from ..figures.lags import lag_shares, lags_over_steps
from ..figures.slice_bars import slice_bars
from ..presentation.digits import count
from ..presentation.lag_words import (
    OF_THE_UPDATE,
    lag_answer,
    lag_facts,
    lag_note,
    lag_parts,
    lag_rows,
    lagged,
    single_lag,
)
from ..presentation.number_columns import number_format
from ..presentation.theme import THEMES, ThemeName
from ..presentation.weights_table import NO_DIGESTS, weights_table
from .scope import NO_STEPS, Scope
from .slice_absences import absences
from .view import asked_gap

RECORD = (
    "collector.log(",
    "    ...,",
    "    rollout_versions=versions,     # of the weights that sampled: one per sequence, or one per token",
    "    trainer_version=version,       # of the weights that computed old (else current) log-probs",
    ")",
)
ADDS = "Mean log-ratios add up: total = mismatch + drift. K3 and chi-squared do not add up, so this chart does not use them."
THREE = "log rollout, old and current log-probs of the same tokens"
TOLD = (
    "These settings come from the recorded configuration. An unknown setting may differ. To fill its row, pass the `config` that"
    " it names, with your own values, to the collector or to `attach`."
)
NO_ENGINE = (
    "This gap does not begin at the engine. Old weights in the engine do not change it; see mismatch, or the gap of rollout to"
    " the same reading."
)
FEW = 12
"""Most lags of a table that shows all its rows."""


def staleness(scope: Scope) -> Iterator[Block]:
    if not scope.recorded:
        yield Paragraph(NO_STEPS, "info")
        return
    if absent := absences(scope.view).get("lag"):
        yield Paragraph(f"By version lag: not available, {absent}.", "absent")
        yield Code(RECORD, "python")
    else:
        yield from _lags(scope)
    yield from _parts(scope)
    yield from _weights(scope)
    yield Heading("Do engine and trainer use the same settings?")
    yield Markup(partial(both_sides, scope.view.of(_compared)))
    yield Paragraph(TOLD, "muted")


def _lags(scope: Scope) -> Iterator[Block]:
    view, gap, metric = scope.view, scope.gap, _size(scope)
    if f"{gap}/{metric.name}" not in view.of(lag_table, scope.chosen, *asked_gap(gap)).columns:
        yield Paragraph(f"No token of {gap} has a known version lag.", "muted")
        return
    if kin(gap) in SAMPLED:
        yield from _share(scope)
    else:
        yield Paragraph(NO_ENGINE if gap not in GAPS else OF_THE_UPDATE, "muted")
    parts = _by_lag(scope)
    if len(parts) == 1:
        fact, follows = single_lag(str(parts["label"][0]), is_sampled=kin(gap) in SAMPLED)
        yield Paragraph(follows, head=fact)
        return
    bars = f"{gap} {metric.name} by version lag: {count(len(parts), 'lag')}"
    yield Beside("staleness", ((Chart("lag_bars", bars, _bars, (scope,)),), tuple(_lag_table(scope, parts))))
    course = view.of(lag_over_steps, scope.chosen, *asked_gap(gap))
    of_gap = [name for name in course.columns if "/" not in name or name.startswith(f"{gap}/")]
    lines = f"{gap} {metric.name} by version lag over the steps"
    yield Chart("lags_over_steps", lines, _over_steps, (scope,), wide=True, numbers=lambda: course.select(of_gap))
    shares = f"Share of the tokens at each version lag, over {course['step'].n_unique()} points"
    numbers = partial(course.select, "step", "last", "lag", f"{gap}/tokens")
    yield Chart("lag_shares", shares, _shares, (scope,), wide=True, numbers=numbers)


def _size(scope: Scope) -> Metric:
    return BY_NAME[size_metric(scope.gap)]


def _lag_table(scope: Scope, parts: pl.DataFrame) -> Iterator[Block]:
    metric, rows = _size(scope), lag_rows(parts, _size(scope).name)
    columns = {
        metric.name: Column(metric.title, number_format(rows[metric.name]), metric.name),
        "N tokens": Column(format="localized"),
        "% of tokens": Column(format="%.2f"),
        "% of the gap": Column(format="%.2f"),
        "± se": Column("± se", number_format(rows["± se"]), "standard error"),
    }
    tallest = None if len(parts) < FEW else 430
    title = f"{scope.gap} by version lag"
    yield Table(title, rows, columns=columns, wide_only=("N tokens",), tallest=tallest)
    if len(parts) < scope.view.metrics(("lag",), scope.chosen, scope.gap).height:
        yield Paragraph(f"Lags are grouped into buckets, because the run has more than {SINGLE} of them.", "muted")


def _by_lag(scope: Scope) -> pl.DataFrame:
    """slice_parts of the lags, ascending."""
    return lag_parts(scope.view.of(lag_table, scope.chosen, *asked_gap(scope.gap)), scope.gap)


def _bars(scope: Scope, theme: ThemeName) -> go.Figure:
    metric = _size(scope)
    return slice_bars(
        _by_lag(scope),
        metric,
        scope.gap,
        metric_head(metric, scope.gap, THEMES[theme], "by version lag"),
        overall=scope.view.whole(f"{scope.gap}/{metric.name}", scope.chosen),
        limits=scope.limits(metric),
        notes=("trainer version − rollout version",),
        theme=THEMES[theme],
    )


def _over_steps(scope: Scope, theme: ThemeName) -> go.Figure:
    course, metric = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap)), _size(scope)
    events = scope.view.events()
    return lags_over_steps(course, metric, scope.gap, limits=scope.limits(metric), events=events, theme=THEMES[theme])


def _shares(scope: Scope, theme: ThemeName) -> go.Figure:
    course = scope.view.of(lag_over_steps, scope.chosen, *asked_gap(scope.gap))
    return lag_shares(course, scope.gap, events=scope.view.events(), theme=THEMES[theme])


def _share(scope: Scope) -> Iterator[Block]:
    """The part of the gap that old weights explain. If every token has a lag, the error of all tokens is the run's own."""
    gap = scope.gap
    found = share_of_lag(lagged(scope.view.metrics(("lag",), scope.chosen, gap), gap))
    tokens, error = (scope.view.whole(f"{gap}/{name}", scope.chosen) for name in ("tokens", f"{size_metric(gap)}_se"))
    if answer := lag_answer(found):
        yield Paragraph(answer, "answer")
    yield Cards(lag_facts(found, error if tokens == found.tokens else None), narrowest=170)
    yield Paragraph(lag_note(found), "muted")
    if found.reason:
        yield Paragraph(f"Share explained by lag: not available, because {found.reason}.", "muted")


def _parts(scope: Scope) -> Iterator[Block]:
    parts = scope.view.of(_decomposed, scope.chosen)
    if parts.is_empty():
        why = f"total = mismatch + drift: not available, because no step has all three gaps; {THREE}."
        yield Paragraph(why, "muted")
        return
    label = f"Mean log-ratios of total, mismatch and drift over {count(len(parts), 'step')}"
    yield Chart("gap_parts", label, _parts_drawn, (scope,), wide=True, numbers=lambda: parts)
    yield Paragraph(ADDS, "muted")


def _parts_drawn(scope: Scope, theme: ThemeName) -> go.Figure:
    return gap_parts(scope.view.of(_decomposed, scope.chosen), events=scope.view.events(), theme=THEMES[theme])


def _decomposed(run: Run, steps: range | None) -> pl.DataFrame:
    return decomposition(run.metrics(("step",), steps=steps))


def _weights(scope: Scope) -> Iterator[Block]:
    yield Heading("Did the weights arrive?")
    frame = scope.view.of(weights_table)
    for words in frame.filter(pl.col("state") == "differs")["finding"]:
        yield Paragraph(words, "warning")
    yield Table("weights of the engines", frame, NO_DIGESTS)


def _compared(run: Run) -> tuple[ComparedSetting, ...]:
    return comparability(run.info)
