"""Notes from the dashboard: in the run, on the charts, and refused with a reason where they cannot be kept."""

import shutil
from pathlib import Path

import pytest
from support.edge_runs import made
from support.pages_open import Open, charts, plain, well

from ratioscope import open_run
from ratioscope.app.dashboard.panels import share
from ratioscope.errors import SourceError
from ratioscope.ingest.maintenance.verify import verify


def test_a_note_is_kept_in_the_run_and_marked_on_charts(opened: Open, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(made(runs, "stale"), tmp_path / "noted")
    app = opened("overview", run)
    app.text_input(key="note_text").set_value("restarted <b>node</b> 7")
    app.number_input(key="note_step").set_value(6)
    well(app.button(key="note_keep").click().run())
    assert "Noted at step 6." in plain(app) and app.text_input(key="note_text").value == ""
    assert ("note", "restarted <b>node</b> 7") in open_run(run).events.filter(step=6).select("event", "note").rows()
    assert any("restarted" in chart for chart in charts(app)), "the page shows it at once"
    assert verify(run, deep=True).sound


def test_an_empty_note_and_a_run_that_cannot_be_written_say_so(
    opened: Open, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(made(runs, "stale"), tmp_path / "kept")
    app = opened("record", run)
    app.button(key="note_keep").click().run()
    assert "A note needs words." in plain(app)

    def refuse(*_: object) -> None:
        raise SourceError("kept cannot be written: Read-only file system")

    monkeypatch.setattr(share, "write_remark", refuse)
    app.text_input(key="note_text").set_value("x")
    app.button(key="note_keep").click().run()
    assert "The note was not kept: kept cannot be written: Read-only file system" in plain(app)
    assert app.text_input(key="note_text").value == "x", "the words are not lost"
