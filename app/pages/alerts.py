"""The Alerts page: steps out of bounds by signal, the rules that open alerts, and the alerts under other rules.

Acknowledges alerts of a run for every reader: the run keeps it.
The rules that open alerts, as a table and as TOML.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import polars as pl

from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.acknowledgements import Acknowledgements, acknowledgements, changes_to, is_acknowledged
from ratioscope.ingest.analysis.recorded_events import until
from ratioscope.metrics.grading.alerts import RULES, Alert, Rules, alert_frame, merged_gaps
from ratioscope.metrics.grading.alerts import alerts as alerts_of
from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.run_rules import RULES_FILE
from ratioscope.metrics.grading.signals import Signal

from ..blocks import Action, Actions, Block, Box, Chart, Code, Column, Drawer, Link, Markup, Paragraph, Section, Table
from ..figures.alert_lanes import alert_lanes
from ..figures.drawing.plotly_objects import go
from ..figures.html.reasons import reasons
from ..presentation.alert_words import counted, in_order, none_words, not_graded, passed_checks, passed_words, rows_of
from ..presentation.digits import count, digits
from ..presentation.metric_places import titled
from ..presentation.theme import MARKS, THEMES, ThemeName
from .face import Choice, Number
from .scope import Scope
from .verdict import cause_line
from .view import View

AS_IS = "none"
"""The entry of the signal picker for no signal."""
ALL, MINE = "all gaps", "this gap"
AROUND = 5
"""Number of steps before and after an alert in a link to it."""
MOST_AT_ONCE, TALLEST = 11, 430
"""Rows of a table that is shown whole, and the height in pixels of a longer one."""
COLUMNS = ("severity", "state", "alert", "steps", "out of bounds", "peak step", "worst reading")
"""The shown ones, which fit into a window of 1440 pixels. The clicked alert has its gaps and the name of its signal."""
WIDTHS = {
    "severity": Column(width=72),
    "alert": Column(width=315),
    "steps": Column(width=80),
    "out of bounds": Column("steps out", help="graded steps out of bounds", width=78),
    "peak step": Column(width=78),
    "worst reading": Column(width=570),
}
ORDER = (
    "Open alerts first, the worst first, then the newest. Click a row to see what it means, what to try, and its steps."
)
KEPT = "The run keeps it, so everybody sees it. The tab no longer counts the alert, unless it becomes worse."
FAILED = "_not_acknowledged"


def alerts(scope: Scope) -> Iterator[Block]:
    face, in_force = scope.face, scope.view.rules.rules
    graded = scope.view.events_and_alerts().graded
    with face.row("alerts"):
        which = face.ask(Choice("of", "alerts of", (ALL, MINE), ALL, look="segments", has_title=False))
        with face.menu("other_rules", "try other rules"):
            rules = _asked_rules(scope, in_force)
    if not scope.recorded:
        yield Paragraph("The run has none of the chosen steps.", "info")
        return
    shown, verdict = graded if which != MINE else graded.filter(gap=scope.gap), scope.view.verdict()
    shown = shown if scope.steps.whole else shown.filter(scope.within)  # as if the run consisted of them
    run_alerts = merged_gaps(alerts_of(shown, rules))
    if changed := scope.view.rules.sentence:
        yield Paragraph(changed, "warning")
    yield from _number(run_alerts, rules, in_force, shown, verdict)
    yield from cause_line(scope)
    if run_alerts:
        known = acknowledged(scope.view)
        ordered = in_order(run_alerts, known)
        yield _timeline(scope, ordered)
        yield from _table(scope, ordered, known)
    yield from _silent(shown, run_alerts, rules, verdict)
    title = _named(in_force) if rules == in_force else "the changed rules"
    yield Drawer(title, partial(_in_force, rules, title), "rules")


def printed(scope: Scope) -> Iterator[Section]:
    table = Table("thresholds of the grades", rules_table(scope.view.rules.rules))
    yield Section("thresholds", "Thresholds of the grades", lambda: (table,), is_reference=True)


def _asked_rules(scope: Scope, in_force: Rules) -> Rules:
    """The rules of the run, or the reader's changes of them, which apply to this page and its link alone."""
    ask = scope.face.ask
    opens = "An alert opens after this many graded steps in a row out of bounds."
    closes = "An alert closes after this many calm graded steps in a row."
    calm = "A signal is calm when it is this share below its watch threshold."
    open_after = ask(Number("open_after", "open after", RULES.open_after, 1, 1000, help=opens, width=120))
    close_after = ask(Number("close_after", "close after", RULES.close_after, 1, 1000, help=closes, width=120))
    hysteresis = ask(Number("hysteresis", "hysteresis", RULES.hysteresis, 0.0, 0.95, 0.05, help=calm, width=120))
    names = [AS_IS, *(signal.name for signal in in_force.signals)]
    title = partial(_title, in_force)
    name = ask(Choice("moved", "try other thresholds for", names, AS_IS, title, width=340))
    signals = in_force.signals
    if name != AS_IS:
        own = in_force.signal(name)
        watch = ask(Number(f"watch_{name}", "watch from", own.watch, format="%.4g"))
        act = ask(Number(f"act_{name}", "act from", own.act, format="%.4g", placeholder="never"))
        signals = moved(signals, name, own.watch if watch is None else watch, act)
    return Rules(int(open_after or 1), int(close_after or 1), float(hysteresis or 0.0), signals)


def _title(in_force: Rules, name: str) -> str:
    return name if name == AS_IS else titled(in_force.signal(name).title, name)


def _number(
    run_alerts: Sequence[Alert], rules: Rules, in_force: Rules, shown: pl.DataFrame, verdict: Finding
) -> Iterator[Block]:
    """The number of alerts, and under changed rules the number under the rules of the run too."""
    number = counted(run_alerts, none_words(verdict, rules))
    if rules == in_force:
        yield Paragraph(number, "lead")
        return
    asis = merged_gaps(alerts_of(shown, in_force))
    before = counted(asis, none_words(verdict, in_force))
    known = {(alert.signal.name, alert.gap, alert.first_step) for alert in asis}
    fresh = sum((alert.signal.name, alert.gap, alert.first_step) not in known for alert in run_alerts)
    named = _named(in_force)
    yield Paragraph(f"{fresh} of them new. With {named}: {before}.", head=f"With these rules: {number},")
    usual: dict[str, object] = {
        "open_after": RULES.open_after,
        "close_after": RULES.close_after,
        "hysteresis": RULES.hysteresis,
        "moved": AS_IS,
    }
    for signal in in_force.signals:
        usual |= {f"watch_{signal.name}": signal.watch, f"act_{signal.name}": signal.act}
    yield Action("as_is", f"back to {named}", Link("", usual), is_plain=True)


def _named(in_force: Rules) -> str:
    """The rules of the run in words."""
    return "the default rules" if in_force == RULES else f"the rules of {RULES_FILE}"


def _timeline(scope: Scope, ordered: Sequence[Alert]) -> Chart:
    """The lanes in the order of the table below them."""
    peaks = [alert.peak_step for alert in ordered]
    label = f"Alerts over the steps, by signal: {counted(ordered)}"
    return Chart(
        "lanes",
        label,
        _lanes,
        (scope, tuple(ordered)),
        wide=True,
        numbers=partial(alert_frame, ordered),
        leads=partial(_peak, peaks),
    )


def _lanes(scope: Scope, ordered: Sequence[Alert], theme: ThemeName) -> go.Figure:
    ends = np.array([scope.range[0], scope.range[-1]] if scope.range else [], np.float64)
    noted = scope.view.events().filter(~pl.col("kind").is_in(["watch", "act"])).filter(scope.within)
    stretches = [alert.outside for alert in ordered]
    return alert_lanes(alert_frame(ordered), ends, stretches, events=noted, theme=THEMES[theme])


def _peak(peaks: Sequence[int], point: Mapping[str, Any]) -> Link | None:
    bar = point.get("customdata")
    return None if bar is None or isinstance(bar, str) else Link("samples", {"step": peaks[int(bar[1])]})


def _table(scope: Scope, ordered: Sequence[Alert], known: Acknowledgements) -> Iterator[Block]:
    """The table, and below it the clicked alert with its meaning and its links."""
    yield Paragraph(ORDER, "muted")
    yield Table(
        "Alerts, the open ones first",
        rows_of(ordered, known),
        columns=WIDTHS,
        only=COLUMNS,
        first=("alert", "steps", "state"),
        tallest=None if len(ordered) <= MOST_AT_ONCE else TALLEST,
        picks="alert_rows",
        rows=[(alert.signal.name, alert.gap, alert.first_step) for alert in ordered],
    )
    at = scope.face.picked("alert_rows", len(ordered))
    if at is not None:
        yield Box("alert_detail", tuple(_detail(scope, ordered[at], known)))


def _detail(scope: Scope, alert: Alert, known: Acknowledgements) -> Iterator[Block]:
    grade, holds = f"{MARKS[alert.severity.label]} {alert.severity.label}", is_acknowledged(alert, known)
    named = f"{alert.signal.name}, {alert.gaps}, {until(alert)}"
    yield Paragraph(named, head=f"{grade} · {alert.signal.title}")
    yield Paragraph(f"{alert.reading} at step {alert.peak_step}. {alert.signal.meaning}", "muted")
    yield Paragraph(alert.signal.remedy, head="Try:")
    around = f"{max(0, alert.first_step - AROUND)}:{alert.last_step + AROUND}"
    acknowledge = partial(_acknowledge, scope, alert, holds=not holds)
    words = "undo the acknowledgement" if holds else "acknowledge"
    yield Actions(
        "alert_links",
        (
            Action("to_peak", "sequences at the peak", Link("samples", {"step": alert.peak_step})),
            Action("to_first", "sequences at the first step", Link("samples", {"step": alert.first_step})),
            Action("to_overview", "show on Overview", Link("overview", {"steps": around})),
            Action("acknowledge", words, acknowledge, KEPT),
            Action("close_alert", "close", scope.face.unpick, is_plain=True),
        ),
    )
    if failed := scope.face.remembered(FAILED, ""):
        scope.face.forget(FAILED)
        yield Paragraph(f"Not acknowledged: {failed}", "warning")


def _acknowledge(scope: Scope, alert: Alert, *, holds: bool) -> None:
    scope.face.forget(FAILED)
    scope.face.remembered(FAILED, change(scope.view, alert, holds=holds))
    scope.face.show_newest()


def _silent(shown: pl.DataFrame, run_alerts: Sequence[Alert], rules: Rules, verdict: Finding) -> Iterator[Block]:
    """The signals without an alert with their largest values and limits, and the signals that could not be graded."""
    passed = passed_checks(shown, run_alerts, rules)
    if len(passed):
        yield Paragraph(f"{MARKS[verdict.coverage.word]} {passed_words(passed)}", "lead")
        rows = [[digits(each) if isinstance(each, float) else each for each in row] for row in passed.rows()]
        yield Markup(partial(reasons, passed.columns, rows), "Checks without an alert", passed)
    if absent := not_graded(shown, verdict):
        yield Paragraph(f"Not graded: {' · '.join(absent)}", "muted")


def _in_force(rules: Rules, title: str) -> Iterator[Block]:
    yield Paragraph(
        f"An alert opens after {count(rules.open_after, 'graded step')} in a row out of bounds and closes after"
        f" {rules.close_after} in a row that lie {digits(100 * rules.hysteresis)}% below the watch threshold."
        " The lower end of a value's 95% interval is graded, so that a small sample alone opens no alert.",
        "muted",
    )
    limits = {name: Column(format="%.3g") for name in ("watch from", "act from")}
    yield Table(title, rules_table(rules), columns=limits)
    yield Code(rules_toml(rules).split("\n"), "toml")
    yield Paragraph(
        f"Thresholds of signals stay in force if they lie in the file {RULES_FILE} of the run folder.", "muted"
    )


def acknowledged(view: View) -> Acknowledgements:
    """The acknowledgements of the run."""
    return view.of(acknowledgements)


def change(view: View, alert: Alert, *, holds: bool) -> str:
    """Acknowledges the alert in the run, or takes it back. Returns the reason if the run cannot be written, else nothing."""
    try:
        for each in changes_to(alert, acknowledgements(view.run), holds=holds):
            write_remark(view.path, each.event, each.step, each.note)
    except SourceError as error:
        return str(error)
    return ""


def open_alerts(view: View) -> int:
    """The number of open alerts that nobody has acknowledged."""
    known = acknowledged(view)
    return sum(alert.is_open and not is_acknowledged(alert, known) for alert in view.events_and_alerts().alerts)


def rules_table(rules: Rules) -> pl.DataFrame:
    """One row per signal: its thresholds on the tested value, their source, and if two steps in a row are needed."""
    rows = [
        (signal.name, signal.title, signal.watch, signal.act, ", ".join(signal.gaps), signal.lasting, signal.source)
        for signal in rules.signals
    ]
    columns = {
        "signal": pl.String, "meaning": pl.String, "watch from": pl.Float64, "act from": pl.Float64, "gaps": pl.String,
        "two steps in a row": pl.Boolean, "source": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def rules_toml(rules: Rules) -> str:
    """The rules as TOML, whose tables of signals a run's own rules may hold. A signal that is never act has no `act`."""
    lines = [
        f"# An alert opens after {rules.open_after} graded steps in a row out of bounds, and closes after",
        f"# {rules.close_after} in a row that lie below the watch threshold by {rules.hysteresis:g} of it.",
    ]
    for signal in rules.signals:
        lines += ["", f"[signals.{signal.name}]", f"watch = {_rule_number(signal.watch)}"]
        lines += [] if signal.act is None else [f"act = {_rule_number(signal.act)}"]
        lines += [f"# {signal.source}"]
    return "\n".join(lines) + "\n"


def moved(signals: Sequence[Signal], name: str, watch: float, act: float | None) -> tuple[Signal, ...]:
    """The signals, with other thresholds for the named one. An act threshold below watch is set to watch."""
    wanted = None if act is None else max(watch, act)
    return tuple(replace(signal, watch=watch, act=wanted) if signal.name == name else signal for signal in signals)


def _rule_number(value: float) -> str:
    return f"{float(value)!r}"
