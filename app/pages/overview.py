"""The Overview page: the likely cause and the verdict, severity per step, the headline metrics, and the collector's state."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import polars as pl

from ratioscope.ingest.analysis.gradient_bias import bias_of_run
from ratioscope.ingest.analysis.growth import doubling_of
from ratioscope.ingest.analysis.recorded_events import until
from ratioscope.metrics.analysis.over_steps import worst_step
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.metrics.grading.coverage import NOT_MEASURED
from ratioscope.metrics.grading.finding import LABELS, Finding
from ratioscope.metrics.grading.severity import with_readings
from ratioscope.metrics.metric import Metric

from ..blocks import (
    Action,
    Actions,
    Block,
    Chart,
    Charts,
    Drawer,
    Facts,
    Link,
    Links,
    Markup,
    Numbers,
    Paragraph,
    Section,
    Verdict,
    Waiting,
)
from ..figures.drawing.plotly_objects import go
from ..figures.html.cards import metric_cards
from ..figures.over_steps import metric_over_steps
from ..figures.ribbon import STRIP, add_severity
from ..presentation.alert_words import foremost, none_words
from ..presentation.bias_words import NAME as BIAS
from ..presentation.bias_words import bias_fact
from ..presentation.digits import count
from ..presentation.metric_places import metrics_at
from ..presentation.parity_words import PARITY, parity_sentence
from ..presentation.sentence import capital
from ..presentation.size_words import NAME
from ..presentation.slice_names import part_words
from ..presentation.statements import statements
from ..presentation.theme import MARKS, THEMES, Theme, ThemeName
from ..presentation.trust_words import NAME as TRUST
from ..presentation.trust_words import trust_words
from ..presentation.value_text import value_words
from ..referee.engine_part import ENGINE_PART, PREFILL
from ..referee.floor_of_run import against_floor
from .baseline import comparison
from .gaps import gaps_of_readings
from .head import graded_counts, head_of, run_facts, size_of
from .health import collector_line, doubt
from .logged_numbers import FIRST, has_value, logged_among, logged_numbers, not_logged, what_it_tells
from .scope import Scope
from .verdict import COMPUTED, age_note, engine_part_of, referee_of, sequences_at, undone, verdict_lines
from .worst_of_run import room_for_samples, samples_in_lines

NEWEST = 3
DECIDING = 240
"""The height of the chart of the deciding metric, in pixels: the worst samples below it stand on the first screen."""
REFEREE = "The referee is a third reading of the recorded tokens, by a model in float32. `ratioscope rescore` adds one to a run."
SIZE = "The mean over all tokens of the step, or of all steps, ± one standard error."
READ = "The worst samples are being read."
NO_TOKENS = "The run has no tokens that match the chosen steps and filter. Clear the steps or the filter above."
NO_GAP = "No cards and charts, because no step has the log-probs of two policies."


def overview(scope: Scope) -> Iterator[Block]:
    view, run, verdict = scope.view, scope.view.run, scope.view.verdict()
    yield from _waiting(scope)
    if who := parity_sentence(run.info):
        yield Paragraph(who, head=PARITY)
    if size := size_of(scope):
        yield Paragraph(size, head=f"{capital(NAME)}:", help=SIZE)
    said = statements(view.judged_verdict(), view.of(doubling_of, scope.gap), has_tokens=not run.no_tokens)
    yield Links("statements", [(each.name, each.words, Link(each.page, each.choices), each.help) for each in said])
    yield from _part(scope)
    collector, doubtful = Markup(partial(collector_line, run, view.state)), doubt(run, view.state)
    if doubtful:
        yield collector
    frame = scope.course()
    if frame.is_empty():
        yield Paragraph(NO_GAP if scope.steps.whole and scope.only is None else NO_TOKENS, "info")
        yield from _beside(scope)
    elif run.no_tokens:
        yield from _logged(scope, frame)
    else:
        yield from _measured(scope, frame, verdict)
    gaps = (*run.gaps, *gaps_of_readings(run, scope.gap))
    facts = run_facts(run.steps, gaps, run.info.get("trainer"), graded_counts(view.grades()))
    bias = bias_fact(view.of(bias_of_run))
    yield Facts([*facts, *([(BIAS, bias)] if bias else [])])
    if run.gaps and not run.no_tokens:
        yield from _trust(scope)
    if not doubtful:  # the header already tells what matters of it
        yield collector


def _waiting(scope: Scope) -> Iterator[Block]:
    """The first lines; while the diagnosis is being made they alone are drawn again."""
    if scope.view.diagnosis() is None:
        yield Waiting("verdict_waits", COMPUTED, lambda: False, partial(_verdict, scope))
    else:
        yield from _verdict(scope)


def _verdict(scope: Scope, *, is_printed: bool = False) -> Iterator[Block]:
    """The answer beside its proof. Printed it stands beside the course of the deciding metric, which the page draws itself."""
    view, known, frame, chart = scope.view, scope.view.diagnosis(), scope.course(), None
    if not is_printed and known is not None and known.result is not None and known.result.diagnosis.likely:
        chart = undone(known.result.diagnosis.likely[0], known.result.gap, "proof")
    shown = [each for each in _first(scope, view.verdict()) if has_value(frame, f"{scope.gap}/{each.name}")]
    if chart is None and shown:
        chart = replace(_chart(scope, frame, shown[0]), name="course")
    head = head_of(scope, known)
    yield Verdict(head.severity, head.title, head.facts, verdict_lines(view, known), head.share, chart)


def printed(scope: Scope) -> Iterator[Section]:
    yield Section("verdict", "", partial(_verdict, scope, is_printed=True))
    name = "" if scope.good is None else scope.good.name
    yield Section("compared", f"Compared with {name}", partial(comparison, scope))


def _measured(scope: Scope, frame: pl.DataFrame, verdict: Finding) -> Iterator[Block]:
    """The deciding metric with the severity of each step, then the worst samples, on the first screen; then the other metrics."""
    leading = _first(scope, verdict)
    wanted = tuple(dict.fromkeys((*leading, *metrics_at("chart", scope.gap))))
    first, others = [*leading], [metric for metric in wanted if metric not in leading]
    if len(first) % 2 == 0 and others:  # one is as wide as the page; the others are two in a row
        first.append(others.pop(0))
    yield _deciding(scope, frame, first[0])
    yield from _newest(scope, verdict)
    yield from _samples(scope)
    yield from _beside(scope)
    yield Markup(partial(_themed_cards, scope))
    yield Charts(tuple(_chart(scope, frame, metric) for metric in first[1:]))
    if others:
        charts = Charts(tuple(_chart(scope, frame, metric) for metric in others))
        yield Drawer(f"more metrics ({len(others)})", lambda: (charts,), "more")
    yield Numbers("overview_numbers", lambda: frame)


def _logged(scope: Scope, frame: pl.DataFrame) -> Iterator[Block]:
    """The content of a scalar log: the metrics of the gap, then the trainer's own numbers."""
    yield from what_it_tells(scope)
    yield from _beside(scope)
    yield Markup(partial(_themed_cards, scope))
    leading = metrics_at("chart", scope.gap)
    of_gap = tuple(dict.fromkeys((*leading, *(metric for metric in BY_NAME.values() if metric.is_of(scope.gap)))))
    known = logged_among(scope.view, of_gap, scope.gap, [frame])
    if known:
        yield _deciding(scope, frame, known[0])
    if len(scope.view.grades()):
        yield from _newest(scope, scope.view.verdict())
    yield Charts(tuple(_chart(scope, frame, metric) for metric in known[1:]))
    yield from logged_numbers(scope, FIRST)
    yield from not_logged(leading, known)
    yield Numbers("overview_numbers", lambda: frame)


def _samples(scope: Scope, *, again: bool = False) -> Iterator[Block]:
    """The worst samples, once they are read: no page waits for them. Paper has them in a section of their own."""
    known = scope.view.diagnosis(scope.gap)
    if known is not None and known.samples is not None:
        yield from samples_in_lines(known.samples, scope.gap, age_note(scope.view, known), known.no_samples)
    elif again:
        yield from room_for_samples(READ)
    else:
        yield Waiting("samples_wait", READ, lambda: False, partial(_samples, scope, again=True))


def _trust(scope: Scope, *, again: bool = False) -> Iterator[Block]:
    """The facts on the trust region, where one holds, once the diagnosis has read the rows: no page waits for them."""
    known = scope.view.diagnosis()
    if known is None and not again:
        yield Waiting("trust_waits", COMPUTED, lambda: False, partial(_trust, scope, again=True))
    elif known is not None and known.context is not None and (said := trust_words(known.context.trust)):
        yield Facts([(TRUST, said)])


def _beside(scope: Scope) -> Iterator[Block]:
    """The whole run beside a third reading of its tokens, and beside the baseline or pinned run."""
    if side := referee_of(scope):
        yield Paragraph(side.sentence, head="Which side is off?", help=REFEREE)
    if part := engine_part_of(scope):
        yield Paragraph(part.sentence, head=ENGINE_PART, help=PREFILL)
    if scope.floor is not None:
        said = scope.view.of(against_floor, scope.floor, scope.gap)
        yield Paragraph(said, head=f"{scope.floor.kind.capitalize()}:")


def _first(scope: Scope, verdict: Finding) -> tuple[Metric, ...]:
    """The metrics whose charts are drawn at once: the one that the deciding signal reads comes first."""
    reads = {signal.name: BY_NAME[signal.reads] for signal in scope.view.signals if scope.gap == verdict.gap}
    deciding = reads.get(verdict.signal)
    own = (deciding,) if deciding is not None and deciding.is_of(scope.gap) else ()
    return tuple(dict.fromkeys((*own, *metrics_at("first", scope.gap))))


def _themed_cards(scope: Scope, theme: Theme) -> str:
    return scope.view.figure(_cards, scope, theme.name)


def _cards(scope: Scope, theme: ThemeName) -> str:
    course = scope.course()
    metrics = logged_among(scope.view, metrics_at("card", scope.gap), scope.gap, [course])
    if scope.only is not None:  # the card shows the last step with such tokens
        course = course.filter(pl.col("step") <= course.drop_nulls(f"{scope.gap}/tokens")["step"][-1])
    limits = {metric.name: scope.limits(metric) for metric in metrics}
    return metric_cards(course, metrics, scope.gap, limits, floor=scope.floor, theme=THEMES[theme])


def _part(scope: Scope) -> Iterator[Block]:
    """A note on which parts of the page follow the chosen steps and tokens."""
    parts = [] if scope.steps.whole else [_steps_words(scope.range)]
    parts += [] if scope.only is None else [f"only tokens of {part_words(scope.only)}"]
    if parts:
        graded = " The severity of steps is graded over all tokens." if scope.only is not None else ""
        shown = f"Cards and charts show {', '.join(parts)}."
        yield Paragraph(f"The verdict and the alerts cover the whole run. {shown}{graded}", "muted")


def _steps_words(steps: range) -> str:
    if not steps:
        return "no steps"
    first, last = steps[0], steps[-1]  # not len(), which fails for a range of 64 bits
    return f"steps {first} to {last}" if first < last else f"step {first}"


def _deciding(scope: Scope, frame: pl.DataFrame, metric: Metric) -> Chart:
    """The chart of the metric, as wide as the page, with the severity of each step as a strip on the same axis."""
    chart = _chart(scope, frame, metric)
    grades = _grades(scope)
    worst = LABELS[int(grades["severity"].to_physical().to_numpy().max())] if len(grades) else NOT_MEASURED
    label = f"{chart.label}. Severity of each of {count(len(grades), 'step')}; the worst is {worst}"
    assert chart.numbers is not None
    numbers = partial(_graded, chart.numbers, grades)
    return replace(chart, label=label, make=_with_severity, wide=True, numbers=numbers, leads=partial(_of_point, scope))


def _graded(numbers: Callable[[], pl.DataFrame], grades: pl.DataFrame) -> pl.DataFrame:
    """The numbers of each step, with its severity and the signal that decided it."""
    return numbers().join(with_readings(grades), "step", "left", maintain_order="left")


def _of_point(scope: Scope, point: Mapping[str, Any]) -> Link | None:
    return _of_bar(point) or _sequences_at(scope, point)


def _of_bar(point: Mapping[str, Any]) -> Link | None:
    bar = point.get("customdata")
    return None if bar is None or isinstance(bar, str) else Link("samples", {"step": int(bar[1])})


def _grades(scope: Scope) -> pl.DataFrame:
    """The grades of the chosen steps, over every gap and every token."""
    grades = scope.view.grades()
    return grades if scope.steps.whole else grades.filter(scope.within)


def _newest(scope: Scope, verdict: Finding) -> Iterator[Block]:
    """The alerts that matter most. A click opens the peak's step."""
    run_alerts = scope.view.events_and_alerts().alerts
    if not run_alerts:
        none = none_words(verdict, scope.view.rules.rules) or f"{MARKS['healthy']} no alert in this run"
        yield Paragraph(none, "muted")
        return
    still = sum(alert.is_open for alert in run_alerts)
    listed = [_alert(place, each) for place, each in enumerate(foremost(run_alerts, verdict, scope.gap)[:NEWEST])]
    words = f"{count(len(run_alerts), 'alert')}, {still} open"
    every = Action("all_alerts", words, Link("alerts"), "All alerts over the steps.", is_plain=True)
    yield Actions("newest", (every, *listed), is_list=True, in_row=True)


def _alert(place: int, alert: Alert) -> Action:
    words = f"{MARKS[alert.severity.label]} {alert.severity.label} {alert.signal.title}, {until(alert)}"
    about = f"{alert.signal.name} of {alert.gaps}. {alert.reading} at step {alert.peak_step}."
    link = Link("samples", {"step": alert.peak_step})
    return Action(f"newest_{place}", words, link, f"{about} Click to see the sequences of that step.", is_plain=True)


def _chart(scope: Scope, frame: pl.DataFrame, metric: Metric) -> Chart:
    gap = scope.gap
    own = [name for name in (f"{gap}/{metric.name}", f"{gap}/{metric.name}_se") if name in frame.columns]
    return Chart(
        f"chart_{metric.name}",
        f"{gap} {metric.name} over {count(len(frame), 'step')}{_worst(frame, metric, gap)}",
        _course,
        (scope, metric.name),
        numbers=partial(frame.select, "step", *own),
        leads=partial(_sequences_at, scope),
    )


def _worst(frame: pl.DataFrame, metric: Metric, gap: str) -> str:
    """The worst value and its step in words, for those who do not see the chart."""
    value, step = worst_step(metric, frame, gap)
    if value is None:
        return ""
    error = frame.row(by_predicate=pl.col("step") == step, named=True).get(f"{gap}/{metric.name}_se")
    return f"; the worst is {value_words(metric.name, value, error)} at step {step}"


def _course(scope: Scope, name: str, theme: ThemeName, **more: Any) -> go.Figure:
    """The chart of a metric. more: as `metric_over_steps` has it."""
    metric = BY_NAME[name]
    verdict, limits, events = scope.view.verdict(), scope.limits(metric), scope.view.events()
    events = events if scope.steps.whole else events.filter(scope.within)
    since = verdict.since_step if metric.signal == verdict.signal and scope.gap == verdict.gap else None
    return metric_over_steps(
        scope.course(), metric, scope.gap, limits=limits, events=events, beside=scope.beside, since=since,
        theme=THEMES[theme], **more,
    )  # fmt: skip


def _with_severity(scope: Scope, name: str, theme: ThemeName) -> go.Figure:
    figure = _course(scope, name, theme, free=STRIP, height=DECIDING)
    add_severity(figure, _grades(scope), THEMES[theme], with_readings)
    return figure


def _sequences_at(scope: Scope, point: Mapping[str, Any]) -> Link | None:
    return sequences_at(scope.view.run.steps, point)
