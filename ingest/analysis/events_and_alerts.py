"""The recorded events of a run together with its alerts: every chart over steps marks them."""

from dataclasses import dataclass

import polars as pl

from ratioscope.metrics.grading.alerts import Alert, alerts, merged_gaps

from ..run import Run
from .grades import signal_grades
from .recorded_events import EVENT_SCHEMA, recorded_events


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
