"""What happened in a run, alerts included: what every chart over steps marks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.grading.alerts import Alert, alerts, merged_gaps

from .grades import signal_grades
from .recorded_events import EVENT_SCHEMA, recorded_events

if TYPE_CHECKING:
    from ..run import Run


@dataclass(frozen=True)
class EventsAndAlerts:
    """events: one row per thing that happened, by step: step, event, note, kind; an alert has the kind `watch` or `act`.

    graded: the signal_grades that the alerts are of.
    """

    events: pl.DataFrame
    alerts: tuple[Alert, ...]
    graded: pl.DataFrame


def events_and_alerts(run: "Run") -> EventsAndAlerts:
    """What is on record, and the alerts of all gaps by the rules in force, each told once."""
    graded = signal_grades(run)
    found = merged_gaps(alerts(graded))
    rows = [
        (
            alert.first_step,
            f"{alert.severity.label} alert",
            f"{alert.signal.title} ({until(alert)}): {_readings(alert)}",
            alert.severity.label,
        )
        for alert in found
    ]
    rang = pl.DataFrame(rows, schema=EVENT_SCHEMA, orient="row")
    return EventsAndAlerts(pl.concat([recorded_events(run), rang]).sort("step", maintain_order=True), found, graded)


def _readings(alert: Alert) -> str:
    """What the signal says at the alert's first step, where it is told, and at its peak."""
    also = f" (also {', '.join(alert.also)})" if alert.also else ""
    if alert.peak_step == alert.first_step:
        return f"{alert.reading}, its peak{also}"
    return (
        f"{alert.first_reading}{also}; peak at step {alert.peak_step}: {alert.reading.removeprefix(f'{alert.gap}: ')}"
    )


def until(alert: Alert) -> str:
    """From which to which step an alert lasted."""
    if alert.is_open:
        return f"from step {alert.first_step}, still open"
    if alert.first_step == alert.last_step:
        return f"step {alert.first_step}"
    return f"steps {alert.first_step} to {alert.last_step}"
