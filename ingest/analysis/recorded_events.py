"""Events of a run by step and kind: what writers noted, resumes, changed settings, and missing data.

kind        meaning
sync        the engines were given new weights
event       anything else that a writer or a person noted
resume      an attempt begins
config      the settings or the budget changed
gap         steps are missing, sequences were dropped or lost, or a writer could not write everything
set aside   a file of the step could not be read
The recorded events of a run together with its alerts: every chart over steps marks them.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import polars as pl

from ratioscope.layout import (
    ACKNOWLEDGED,
    CONTROL,
    FIRST_ROWS,
    IDENTITY,
    REFEREE,
    STATE,
    TAG,
    VIEW,
    WEIGHTS_READ,
    WITHDRAWN,
)
from ratioscope.metrics.grading.alerts import Alert, alerts, merged_gaps
from ratioscope.metrics.step_holes import holes

from ..run import Run
from .grades import signal_grades
from .run_settings import differences, settings

EventKind = Literal["sync", "event", "resume", "config", "gap", "set aside"]
EventRow = tuple[int, str, str, EventKind]
EVENT_SCHEMA = pl.Schema({"step": pl.Int64(), "event": pl.String(), "note": pl.String(), "kind": pl.String()})
KINDS: dict[str, EventKind] = {
    "weight_sync": "sync",
    "resume": "resume",
    "config_change": "config",
    CONTROL: "config",
    STATE: "gap",
}
"""Name of a writer's event -> kind. Any other name has the kind `event`."""
APART = (FIRST_ROWS, ACKNOWLEDGED, WITHDRAWN, VIEW, TAG, REFEREE, IDENTITY, WEIGHTS_READ)
"""Events that are told at places of their own, and on no chart."""
_STEP = re.compile(r"^tokens/step=(\d+)/")
_NAMED = 3
"""Number of settings or reasons that a note names; it counts the others."""


def recorded_events(run: Run) -> pl.DataFrame:
    """One row per event, by step: step, event (a few words), note, kind. Events without a step are left out."""
    rows = [*_noted(run), *_attempts(run), *_missing(run.steps), *_dropped(run), *_lost(run), *_set_aside(run)]
    return pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row").sort("step", maintain_order=True)


def _noted(run: Run) -> Iterator[EventRow]:
    for row in run.events.filter(~pl.col("event").is_in(APART)).iter_rows(named=True):
        yield row["step"], row["event"], row["note"], KINDS.get(row["event"], "event")


def _attempts(run: Run) -> Iterator[EventRow]:
    """A resume at the first step of each later attempt, and its settings where they differ from the attempt before."""
    for old in run.shadowed:
        if old.rank is not None and old.is_again:
            steps = f"steps {old.first_step} to {old.last_step}"
            note = f"rank {old.rank} was started again; it writes {steps} again, the other ranks go on"
            yield old.first_step, "resume", note, "resume"
    begins = run.attempts
    for before, attempt in zip(list(begins), list(begins)[1:], strict=False):
        again = [
            f"steps {old.first_step} to {old.last_step} of attempt {old.attempt}"
            for old in run.shadowed
            if old.by == attempt and old.rank is None and old.is_again
        ]
        note = f"attempt {attempt} begins" + (f"; it writes {' and '.join(again)} again" if again else "")
        yield begins[attempt], "resume", note, "resume"
        changed = differences(settings(run.info, before), settings(run.info, attempt))
        if changed:
            words = _some([difference.words for difference in changed], "setting")
            yield begins[attempt], "config change", f"attempt {attempt}: {words}", "config"


def _missing(steps: Sequence[int]) -> Iterator[EventRow]:
    """Steps that are missing: the distance between two neighbours on record is larger than usual."""
    for at in holes(steps).tolist():
        first, last = steps[at] + 1, steps[at + 1] - 1
        words = f"step {first} is" if first == last else f"steps {first} to {last} are"
        yield first, "gap", f"{words} not on record", "gap"


def _dropped(run: Run) -> Iterator[EventRow]:
    dropped = run.drops.drop_nulls("step").group_by("step", maintain_order=True)
    for row in dropped.agg(pl.col("sequences").sum(), pl.col("reason").unique(maintain_order=True)).iter_rows(
        named=True
    ):
        noun = "sequence" if row["sequences"] == 1 else "sequences"
        yield row["step"], "dropped", f"{row['sequences']:,} {noun}: {_some(row['reason'], 'reason')}", "gap"


def _lost(run: Run) -> Iterator[EventRow]:
    """Sequences that a writer had taken and not written when it ended, at the newest step that its log names."""
    for lost in run.conservation.losses:
        step = max((known for known in (lost.step, lost.taken) if known is not None), default=None)
        if step is not None:
            noun = "sequence" if lost.sequences == 1 else "sequences"
            why = f"{lost.writer} ended without writing what it had taken"
            yield step, "lost", f"at least {lost.sequences:,} {noun}: {why}", "gap"


def _set_aside(run: Run) -> Iterator[EventRow]:
    for file in run.quarantined:
        if (match := _STEP.match(file.path)) is not None:
            yield int(match[1]), "set aside", f"{file.path}: {file.reason}", "set aside"


def _some(words: Sequence[str], noun: str) -> str:
    more = len(words) - _NAMED
    rest = f", and {more} more {noun}{'s' if more > 1 else ''}" if more > 0 else ""
    return ", ".join(words[:_NAMED]) + rest


@dataclass(frozen=True)
class EventsAndAlerts:
    """Events and alerts of a run."""

    events: pl.DataFrame
    """One row per event or alert, by step: step, event, note, kind. The kind of an alert is `watch` or `act`."""
    alerts: tuple[Alert, ...]
    graded: pl.DataFrame
    """The `signal_grades` from which the alerts were computed."""


def events_and_alerts(run: Run, graded: pl.DataFrame | None = None) -> EventsAndAlerts:
    """The recorded events and the alerts of all gaps. Alerts that are told as one are joined, see alerts.merged_gaps.

    graded: `signal_grades` of the run.
    """
    graded = signal_grades(run) if graded is None else graded
    run_alerts = merged_gaps(alerts(graded, run.rules.rules))
    rows = [
        (
            alert.first_step,
            f"{alert.severity.label} alert",
            f"{alert.signal.title} ({until(alert)}): {_readings(alert)}",
            alert.severity.label,
        )
        for alert in run_alerts
    ]
    rang = pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row")
    return EventsAndAlerts(
        pl.concat([recorded_events(run), rang]).sort("step", maintain_order=True), run_alerts, graded
    )


def _readings(alert: Alert) -> str:
    """The readings of the signal at the alert's first step and at its peak, in words."""
    also = f" (also {', '.join(alert.also)})" if alert.also else ""
    if alert.peak_step == alert.first_step:
        return f"{alert.reading}, its peak{also}"
    return (
        f"{alert.first_reading}{also}; peak at step {alert.peak_step}: {alert.reading.removeprefix(f'{alert.gap}: ')}"
    )


def until(alert: Alert) -> str:
    """The steps that an alert covers, in words."""
    if alert.is_open:
        return f"from step {alert.first_step}, still open"
    if alert.first_step == alert.last_step:
        return f"step {alert.first_step}"
    return f"steps {alert.first_step} to {alert.last_step}"
