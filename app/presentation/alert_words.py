"""The alerts of a run as a table and in words, and the checks that rang none."""

from collections.abc import Sequence

import polars as pl

from ratioscope.ingest.analysis.acknowledgements import Acknowledgements, is_acknowledged
from ratioscope.ingest.analysis.recorded_events import until
from ratioscope.metrics.grading.alerts import Alert, Rules
from ratioscope.metrics.grading.finding import Finding, Severity
from ratioscope.metrics.grading.signals import SIGNALS

from .digits import count
from .theme import MARKS

HIGHEST = "highest (lower bound)"
BRIEFLY = "out of bounds for too few steps"


def counted(run_alerts: Sequence[Alert], why_none: str = "") -> str:
    """The number of alerts, of those at act, and of those still open. why_none: as none_words returns it."""
    if not run_alerts:
        return why_none or f"{MARKS['healthy']} no alert"
    acts = sum(alert.severity.label == "act" for alert in run_alerts)
    still = sum(alert.is_open for alert in run_alerts)
    return f"{count(len(run_alerts), 'alert')}, {acts} at {MARKS['act']} act, {still} still open"


def alert_line(alert: Alert) -> str:
    """The alert in one line: severity, problem, gaps, steps and the worst reading."""
    return f"{alert.severity.label}: {alert.signal.title} ({alert.gaps}), {until(alert)}: {alert.reading}"


def none_words(verdict: Finding, rules: Rules) -> str:
    """Why a run has no alert although it is not healthy; empty for a healthy run."""
    if verdict.peak_step is None:
        return "" if verdict.is_healthy else f"No alert: the verdict is {MARKS[verdict.word]} {verdict.word}"
    steps = count(rules.open_after, "graded step")
    return (
        f"No alert, although step {verdict.peak_step} is graded {MARKS[verdict.word]} {verdict.word}: an alert opens after"
        f" {steps} in a row out of bounds, and no signal has so many"
    )


def in_order(run_alerts: Sequence[Alert], known: Acknowledgements) -> list[Alert]:
    """The alerts that wait for somebody first, then the other open ones; among equals the worst, then the newest."""
    return sorted(
        run_alerts,
        key=lambda alert: (
            alert.is_open and not is_acknowledged(alert, known),
            alert.is_open,
            alert.severity,
            alert.first_step,
            alert.last_step,
        ),
        reverse=True,
    )


def foremost(run_alerts: Sequence[Alert], verdict: Finding, gap: str) -> list[Alert]:
    """One alert of each signal: the verdict's first, then open ones, the worst, those of the gap, and the newest."""

    def rank(alert: Alert) -> tuple[bool, bool, Severity, bool, int]:
        gaps = (alert.gap, *alert.also)
        decides = alert.signal.name == verdict.signal and verdict.gap in gaps
        return (
            decides and alert.first_step == verdict.since_step,
            alert.is_open,
            alert.severity,
            gap in gaps,
            alert.first_step,
        )

    of_signals: dict[str, Alert] = {}
    for alert in sorted(run_alerts, key=rank, reverse=True):
        of_signals.setdefault(alert.signal.name, alert)
    return list(of_signals.values())


def rows_of(ordered: Sequence[Alert], known: Acknowledgements) -> pl.DataFrame:
    """The table: one row per alert."""
    rows = [
        (
            f"{MARKS[alert.severity.label]} {alert.severity.label}", _state(alert, known), alert.signal.title, _steps(alert),
            alert.steps, alert.peak_step, alert.reading, alert.signal.name, alert.gaps,
        )
        for alert in ordered
    ]  # fmt: skip
    columns = {
        "severity": pl.String, "state": pl.String, "alert": pl.String, "steps": pl.String, "out of bounds": pl.Int64,
        "peak step": pl.Int64, "worst reading": pl.String, "signal": pl.String, "gaps": pl.String,
    }  # fmt: skip
    return pl.DataFrame(rows, schema=columns, orient="row")


def _state(alert: Alert, known: Acknowledgements) -> str:
    state = "open" if alert.is_open else "over"
    return f"{state}, acknowledged" if is_acknowledged(alert, known) else state


def _steps(alert: Alert) -> str:
    if alert.is_open:
        return f"from {alert.first_step}"
    return f"{alert.first_step}" if alert.first_step == alert.last_step else f"{alert.first_step} to {alert.last_step}"


def passed_checks(shown: pl.DataFrame, run_alerts: Sequence[Alert], rules: Rules) -> pl.DataFrame:
    """A row per signal without an alert: its problem, its largest value, after allowing for errors, and the limit."""
    rang = {alert.signal.name for alert in run_alerts}
    tested = dict(shown.group_by("signal").agg(pl.col("tested").max()).rows())
    rows = [
        (
            signal.title,
            tested[signal.name],
            signal.watch,
            signal.unit,
            BRIEFLY if tested[signal.name] >= signal.watch else "",
            signal.name,
        )
        for signal in rules.signals
        if signal.name in tested and signal.name not in rang
    ]
    schema = {
        "problem": pl.String, HIGHEST: pl.Float64, "watch from": pl.Float64, "unit": pl.String, "note": pl.String,
        "signal": pl.String,
    }  # fmt: skip
    frame = pl.DataFrame(rows, schema=schema, orient="row")
    return frame if frame["note"].str.len_chars().sum() else frame.drop("note")


def passed_words(passed: pl.DataFrame) -> str:
    """The number of checks without an alert, those apart that were out of bounds too briefly for one.

    >>> passed_words(pl.DataFrame({"signal": ["kl_k3", "surprisal"], "note": ["", BRIEFLY]}))
    '1 check passed, 1 was out of bounds too briefly for an alert'
    """
    brief = int((passed["note"] != "").sum()) if "note" in passed.columns else 0
    briefly = f", {brief} {'was' if brief == 1 else 'were'} out of bounds too briefly for an alert" if brief else ""
    return f"{count(len(passed) - brief, 'check')} passed{briefly}"


def not_graded(shown: pl.DataFrame, verdict: Finding) -> list[str]:
    """Each signal, and each gap of one, that no row of the grades has, with the reason. shown: as signal_grades returns them."""
    tested = set(shown["signal"])
    known = {check.name: check.absent for check in verdict.checks if check.absent}
    lines = []
    for signal in SIGNALS:
        names = [name for name in (signal.name, *(f"{signal.name} of {gap}" for gap in signal.gaps)) if name in known]
        lines += [f"{signal.title} ({name}), {known[name]}" for name in names]
        if signal.name not in tested and not names:
            lines.append(f"{signal.title} ({signal.name}), because this run or choice has no gap that it reads")
    return lines
