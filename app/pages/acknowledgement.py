"""Acknowledges alerts of a run for every reader: the run keeps it."""

from ratioscope.collectors.writing.remark import write_remark
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis.acknowledgements import Acknowledgements, acknowledgements, changes_to, is_acknowledged
from ratioscope.metrics.grading.alerts import Alert

from .view import View


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
