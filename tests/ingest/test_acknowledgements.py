"""Acknowledgements of alerts: kept in the run, of the last change, and of nothing that is worse than what was seen."""

from dataclasses import replace
from pathlib import Path

import pytest
from support.recorded import recorded

from ratioscope import open_run
from ratioscope.collectors.writing.offline import write_remark
from ratioscope.ingest.analysis.acknowledgements import acknowledgements, changes_to, is_acknowledged
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.layout import ACKNOWLEDGED
from ratioscope.metrics.grading.alerts import Alert
from ratioscope.metrics.grading.finding import Severity


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded("trl_vllm_stale4", tmp_path / "stale")


def _alert(run: Path) -> Alert:
    return events_and_alerts(open_run(run)).alerts[0]


def _change(run: Path, alert: Alert, *, holds: bool) -> None:
    for each in changes_to(alert, acknowledgements(open_run(run)), holds=holds):
        write_remark(run, each.event, each.step, each.note)


def _covered(run: Path, alert: Alert) -> bool:
    return is_acknowledged(alert, acknowledgements(open_run(run)))


def test_the_last_change_holds_however_often_it_was_changed(run: Path) -> None:
    alert = _alert(run)
    assert not _covered(run, alert)
    for holds in (True, False, True, False, True):
        _change(run, alert, holds=holds)
        assert _covered(run, alert) is holds
    assert verify(run, deep=True).sound and _alert(run) == alert


def test_it_covers_the_alert_that_goes_on_and_neither_a_worse_nor_another_one(run: Path) -> None:
    alert = replace(_alert(run), severity=Severity.WATCH)
    _change(run, alert, holds=True)
    assert _covered(run, replace(alert, last_step=alert.last_step + 100, gap="total"))
    assert not _covered(run, replace(alert, severity=Severity.ACT))
    later = alert.last_step + 1
    assert not _covered(run, replace(alert, first_step=later, last_step=later + 5))
    _change(run, replace(alert, severity=Severity.ACT), holds=True)
    assert _covered(run, replace(alert, severity=Severity.ACT)), "it was seen again"


def test_notes_of_another_form_are_no_acknowledgements(run: Path) -> None:
    alert = _alert(run)
    for note in ("", f"{alert.signal.name}", f"{alert.signal.name} healthy, change 1", "x act, change 99999999999"):
        write_remark(run, ACKNOWLEDGED, alert.first_step, note)
    assert acknowledgements(open_run(run)) == ()
