"""What happened in a run, alerts included: what every chart over steps marks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.ingest.happened import HAPPENED
from ratioscope.ingest.happened import happened as recorded
from ratioscope.metrics.alerts import Alert, alerts

from .grading import signal_grades

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


@dataclass(frozen=True)
class Happened:
    """events: one row per thing that happened, by step: step, event, note, kind; an alert has the kind `watch` or `act`.

    graded: the signal_grades that the alerts are of.
    """

    events: pl.DataFrame
    alerts: tuple[Alert, ...]
    graded: pl.DataFrame


def happened(run: "Run") -> Happened:
    """What is on record, and the alerts of all gaps by the rules in force."""
    graded = signal_grades(run)
    found = alerts(graded)
    rows = [
        (
            alert.first_step,
            f"{alert.severity.label} alert",
            f"{alert.signal.title} ({until(alert)}): {alert.reading}",
            alert.severity.label,
        )
        for alert in found
    ]
    rang = pl.DataFrame(rows, schema=HAPPENED, orient="row")
    return Happened(pl.concat([recorded(run), rang]).sort("step", maintain_order=True), found, graded)


def until(alert: Alert) -> str:
    """From which to which step an alert lasted."""
    if alert.is_open:
        return f"from step {alert.first_step}, still open"
    if alert.first_step == alert.last_step:
        return f"step {alert.first_step}"
    return f"steps {alert.first_step} to {alert.last_step}"
