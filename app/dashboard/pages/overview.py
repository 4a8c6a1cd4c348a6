"""The Overview page: the likely cause and the verdict, severity per step, the headline metrics, and the collector's state."""

from collections.abc import Sequence

import plotly.graph_objects as go
import polars as pl
import streamlit as st

from ratioscope.ingest.analysis.events_and_alerts import until
from ratioscope.metrics.definitions.registry import BY_NAME
from ratioscope.metrics.grading.alerts import Alert, Rules
from ratioscope.metrics.grading.coverage import NOT_MEASURED
from ratioscope.metrics.grading.finding import LABELS, Finding
from ratioscope.metrics.grading.severity import with_readings
from ratioscope.metrics.metric import Metric

from ...browser.chart import points
from ...figures.html.cards import metric_cards
from ...figures.over_steps import metric_over_steps
from ...figures.ribbon import severity_ribbon
from ...pages.collector_line import collector_line, doubt
from ...pages.scope import Scope
from ...pages.step_choice import nearest
from ...presentation.alert_words import foremost, none_words
from ...presentation.digits import count
from ...presentation.escape import streamlit_label as label
from ...presentation.metric_places import metrics_at
from ...presentation.slice_names import part_words
from ...presentation.theme import MARKS, THEMES, ThemeName
from ..model.looks import state_seen
from ..panels.charts import appearance, clicked, draw, numbers_behind
from ..panels.layout import cells
from ..panels.links import go_to
from ..panels.logged_numbers import logged_among, say_not_logged
from ..panels.statement_links import statement_links
from ..panels.verdict_box import floor_line, side_line, verdict_box

NEWEST = 3


def render(scope: Scope) -> None:
    view, theme = scope.view, appearance()
    verdict = view.verdict()
    verdict_box(view)
    side_line(view)
    floor_line(scope)
    statement_links(view, scope.gap)
    _say_part(scope)
    state = state_seen(view.path)
    doubtful = doubt(view.run, state)
    if doubtful:
        st.html(collector_line(view.run, state, theme))
    frame = scope.course()
    if frame.is_empty():
        st.info("The run has no tokens that match the chosen steps and filter. Clear the steps or the filter above.")
        return
    st.html(view.figure(_cards, scope, theme.name))
    wanted = tuple(dict.fromkeys((*_first(scope.gap, verdict), *metrics_at("chart", scope.gap))))
    known = logged_among(view, wanted, scope.gap, [frame])
    first = [metric for metric in _first(scope.gap, verdict) if metric in known]
    others = [metric for metric in known if metric not in first]
    if len(first) % 2 == 0 and others:  # one stands beside the ribbon; the others are two in a row
        first.append(others.pop(0))
    _answer_drawn(scope, frame, first[:1], verdict)
    _charts(scope, frame, first[1:])
    say_not_logged(wanted, known)
    if others:
        _more(scope, frame, others)
    numbers_behind(lambda: frame, "overview_numbers")
    if not doubtful:  # the header already tells what matters of it
        st.html(collector_line(view.run, state, theme))


def _answer_drawn(scope: Scope, frame: pl.DataFrame, deciding: Sequence[Metric], verdict: Finding) -> None:
    """Side by side, so that both are on the first screen: the deciding metric with its limits, and when it was how severe."""
    places = cells(1 + len(deciding), "answer")
    for place, metric in zip(places, deciding, strict=False):
        with place:
            _chart(scope, frame, metric)
    with places[-1]:
        _ribbon(scope)
        _newest(scope.view.events_and_alerts().alerts, verdict, scope.gap, scope.view.rules.rules)


def _more(scope: Scope, frame: pl.DataFrame, metrics: Sequence[Metric]) -> None:
    drawer = st.expander(f"more metrics ({len(metrics)})", key="more", on_change="rerun", bind="query-params")
    if drawer.open:
        with drawer:
            _charts(scope, frame, metrics)


def _first(gap: str, verdict: Finding) -> tuple[Metric, ...]:
    """The metrics whose charts are drawn at once: the one that the verdict is made of comes first."""
    first = metrics_at("first", gap)
    deciding = tuple(
        metric
        for metric in BY_NAME.values()
        if metric.signal == verdict.signal and gap == verdict.gap and metric.is_of(gap)
    )
    return tuple(dict.fromkeys((*deciding[:1], *first))) if verdict.signal else first


def _cards(scope: Scope, theme: ThemeName) -> str:
    course = scope.course()
    metrics = logged_among(scope.view, metrics_at("card", scope.gap), scope.gap, [course])
    if scope.only is not None:  # the card shows the last step with such tokens
        course = course.filter(pl.col("step") <= course.drop_nulls(f"{scope.gap}/tokens")["step"][-1])
    limits = {metric.name: scope.limits(metric) for metric in metrics}
    return metric_cards(course, metrics, scope.gap, limits, floor=scope.floor, theme=THEMES[theme])


def _say_part(scope: Scope) -> None:
    """A note on which parts of the page follow the chosen steps and tokens."""
    parts = [] if scope.steps.whole else [_steps_words(scope.range)]
    parts += [] if scope.only is None else [f"only tokens of {part_words(scope.only)}"]
    if parts:
        what = label(", ".join(parts), 200)
        graded = " The severity of steps is graded over all tokens." if scope.only is not None else ""
        st.caption(f"The verdict and the alerts cover the whole run. Cards and charts show {what}.{graded}")


def _steps_words(steps: range) -> str:
    if not steps:
        return "no steps"
    first, last = steps[0], steps[-1]  # not len(), which fails for a range of 64 bits
    return f"steps {first} to {last}" if first < last else f"step {first}"


def _ribbon(scope: Scope) -> None:
    of_all = Scope(scope.view, steps=scope.steps)  # covers every gap and every token
    grades = _grades(of_all)
    worst = LABELS[int(grades["severity"].to_physical().to_numpy().max())] if len(grades) else NOT_MEASURED
    draw(
        scope.view.figure(_bars, of_all, appearance().name),
        "ribbon",
        f"Severity of each of {count(len(grades), 'step')}; the worst is {worst}",
        on_click=_bar_chosen,
        numbers=lambda: with_readings(grades),
    )


def _grades(scope: Scope) -> pl.DataFrame:
    """The grades of the chosen steps."""
    grades = scope.view.grades()
    return grades if scope.steps.whole else grades.filter(scope.within)


def _bars(scope: Scope, theme: ThemeName) -> go.Figure:
    return severity_ribbon(_grades(scope), events=_within(scope), theme=THEMES[theme], in_words=with_readings)


def _newest(run_alerts: Sequence[Alert], verdict: Finding, gap: str, rules: Rules) -> None:
    """The alerts that matter most. A click opens the peak's step."""
    if not run_alerts:
        st.caption(none_words(verdict, rules) or f"{MARKS['healthy']} no alert in this run")
        return
    with st.container(gap=None, key="newest"):
        still = sum(alert.is_open for alert in run_alerts)
        st.caption(f"{count(len(run_alerts), 'alert')}, {still} open:", width="content")
        for place, alert in enumerate(foremost(run_alerts, verdict, gap)[:NEWEST]):
            grade = f"{MARKS[alert.severity.label]} {alert.severity.label}"
            st.button(
                f"{grade} {label(alert.signal.title)}, {until(alert)}",
                key=f"newest_{place}",
                type="tertiary",
                help=f"{label(alert.signal.name)} of {alert.gaps}. {label(alert.reading, 200)} at step {alert.peak_step}."
                " Click to see the sequences of that step.",
                on_click=go_to,
                args=("sequences",),
                kwargs={"step": alert.peak_step},
            )
        st.button("all alerts", key="all_alerts", type="tertiary", on_click=go_to, args=("alerts",))


def _charts(scope: Scope, frame: pl.DataFrame, metrics: Sequence[Metric]) -> None:
    for place, metric in zip(cells(len(metrics), metrics[0].name if metrics else ""), metrics, strict=True):
        with place:
            _chart(scope, frame, metric)


def _chart(scope: Scope, frame: pl.DataFrame, metric: Metric) -> None:
    gap, key = scope.gap, f"chart_{metric.name}"
    own = [name for name in (f"{gap}/{metric.name}", f"{gap}/{metric.name}_se") if name in frame.columns]
    draw(
        scope.view.figure(_course, scope, metric.name, appearance().name),
        key,
        f"{gap} {metric.name} over {count(len(frame), 'step')}",
        on_click=lambda: _point_chosen(key, scope.view.run.steps),
        numbers=lambda: frame.select("step", *own),
    )


def _course(scope: Scope, name: str, theme: ThemeName) -> go.Figure:
    """The chart of a metric."""
    metric = BY_NAME[name]
    limits, events = scope.limits(metric), _within(scope)
    return metric_over_steps(
        scope.course(), metric, scope.gap, limits=limits, events=events, beside=scope.beside, theme=THEMES[theme]
    )


def _within(scope: Scope) -> pl.DataFrame:
    """The events of the chosen steps."""
    events = scope.view.events()
    return events if scope.steps.whole else events.filter(scope.within)


def _bar_chosen() -> None:
    if (bar := clicked("ribbon")) is not None:
        go_to("sequences", step=int(bar[1]))


def _point_chosen(key: str, steps: Sequence[int]) -> None:
    """Goes to the clicked step. A point of a thinned line may stand for several steps: it leads to the nearest one."""
    steps_clicked = [point["x"] for point in points(key) if isinstance(point["x"], int | float)]
    if steps_clicked:
        go_to("sequences", step=nearest(steps, round(steps_clicked[0])))
