"""The timeline of the report: the severity of each step, periods, events, and the metrics of each gap over the steps."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import polars as pl

from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.run import Run
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.episodes import Spell, spells
from ratioscope.metrics.grading.severity import with_readings
from ratioscope.metrics.metric import Metric
from ratioscope.record import GAPS

from ..blocks import Block, Chart, Charts, Drawer, Heading, Table, text_table
from ..figures.drawing.faint_run import FaintRun
from ..figures.drawing.plotly_objects import go
from ..figures.over_steps import metric_over_steps
from ..figures.ribbon import severity_ribbon
from ..presentation.digits import count
from ..presentation.metric_places import metrics_at
from ..presentation.theme import MARKS, THEMES, ThemeName
from .gaps import few_digits, gaps_of_readings, recorded_gap, steps_of_all
from .head import graded_counts
from .logged_numbers import has_value
from .scope import Scope
from .scorecard import score_words, scores_of
from .view import View

POINTS = 240
"""Most points of a line. Charts stand in pairs, so each has half of its width in the dashboard."""
FEW_EVENTS = 8
"""Events that stand there unfolded."""
RIBBON = 60
"""Characters of the severity of all steps."""
NO_EVENT = "No event was recorded. A trainer can record weight syncs and resumes with Collector.event."


def timeline(scope: Scope) -> Iterator[Block]:
    view, grades = scope.view, scope.view.grades()
    graded = ", ".join(f"{count(number)} {word}" for word, number in graded_counts(grades).items())
    parts = f"Severity over {len(grades)} steps, the worst of each part: `{_in_blocks(grades)}`" if len(grades) else ""
    yield Chart("severity", f"severity of each step: {graded}", _ribbon, (view,), wide=True, text=parts)
    periods = view.of(periods_of, view)
    if periods:
        table = partial(_periods, periods)
        yield Drawer(f"{count(len(periods), 'period')} of equal severity", table, is_printed=True)
    events = view.of(recorded_events).select("step", "event", "note")
    listed = Table("events", events, NO_EVENT)
    many = Drawer(count(len(events), "event"), lambda: (listed,), is_printed=True)
    yield listed if len(events) <= FEW_EVENTS else many
    readings = view.of(gaps_of_readings, scope.gap)
    for gap in dict.fromkeys((*view.run.gaps, *(gap for gap in readings if gap == scope.gap))):
        title = f"{gap} over the steps"
        if gap == scope.gap:
            yield Heading(title)
            yield from _of_gap(scope, gap)
        else:
            yield Drawer(title, partial(_of_gap, scope, gap))


def periods_of(run: Run, view: View) -> tuple[Spell, ...]:
    """The runs of consecutive steps of one severity."""
    return spells(view.graded(), run.rules.rules)


def _periods(periods: Sequence[Spell]) -> Iterator[Block]:
    rows = [
        (
            str(each.first) if each.first == each.last else f"{each.first} to {each.last}",
            f"{MARKS[each.severity]} {each.severity}",
            f"{each.reading} (step {each.peak})",
        )
        for each in periods
    ]
    yield text_table("periods of equal severity", ("steps", "severity", "worst reading"), rows)


def _in_blocks(grades: pl.DataFrame) -> str:
    """One block character per part of the steps: low is healthy, half is watch, full is act."""
    ranks = grades.sort("step")["severity"].to_physical().to_list()
    parts = min(len(ranks), RIBBON)
    ends = [round(part * len(ranks) / parts) for part in range(parts + 1)]
    return "".join("▁▄█"[max(ranks[first:last])] for first, last in zip(ends, ends[1:], strict=False))


def _ribbon(view: View, theme: ThemeName) -> go.Figure:
    return severity_ribbon(with_readings(view.grades()), events=view.of(recorded_events), theme=THEMES[theme])


def _of_gap(scope: Scope, gap: str) -> Iterator[Block]:
    yield courses(scope, gap, metrics_at("chart", gap))
    yield from few_digits(scope, gap)


def courses(scope: Scope, gap: str, metrics: Sequence[Metric]) -> Charts:
    """The charts of these metrics over the steps, without those that have no value."""
    frame, readings = _measured(scope, gap), scope.view.of(gaps_of_readings, scope.gap)
    scores = {score.name: score for score in scores_of(scope, readings) if score.gap == gap}
    return Charts(
        tuple(
            Chart(
                f"{gap}-{metric.name}",
                f"{gap} {metric.name} over steps{score_words(scores.get(metric.name))}",
                _course,
                (scope, gap, metric.name),
            )
            for metric in metrics
            if has_value(frame, f"{gap}/{metric.name}")
        )
    )


def _course(scope: Scope, gap: str, name: str, theme: ThemeName) -> go.Figure:
    metric = BY_NAME[name]
    return metric_over_steps(
        _measured(scope, gap),
        metric,
        gap,
        limits=replace(scope, gap=gap).limits(metric),
        events=scope.view.of(recorded_events),
        beside=scope.beside if gap in GAPS else _recorded_beside(scope, metric, gap),
        points=POINTS,
        theme=THEMES[theme],
    )


def _measured(scope: Scope, gap: str) -> pl.DataFrame:
    """The steps at which a gap of readings was measured; all for a recorded one."""
    steps = scope.view.of(steps_of_all, scope.view.of(gaps_of_readings, scope.gap))
    return steps if gap in GAPS else steps.filter(pl.col(f"{gap}/tokens").is_not_null())


def _recorded_beside(scope: Scope, metric: Metric, gap: str) -> FaintRun | None:
    """The recorded gap as the faint line of the chart of a reading's gap."""
    recorded = scope.view.of(recorded_gap, scope.gap)
    steps = scope.view.of(steps_of_all, scope.view.of(gaps_of_readings, scope.gap))
    names = {f"{recorded}/{metric.name}{end}": f"{gap}/{metric.name}{end}" for end in ("", "_se")}
    own = {name: to for name, to in names.items() if name in steps.columns}
    return FaintRun(recorded, steps.select("step", *own).rename(own)) if own else None
