"""What a budget left out and what a writer could not write, as a reader sees it."""

from pathlib import Path

import pytest
from support.broken_disk import broken_on
from support.step_arrays import step_arrays

from ratioscope import Collector, open_run
from ratioscope.app.cli import main
from ratioscope.collectors.budget import Budget
from ratioscope.ingest.analysis.info import info


def test_what_the_budget_left_out_is_neither_pending_nor_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    collector = Collector(tmp_path / "run", budget=Budget(step_bytes=20_000, worst=2))
    for step in (1, 2, 3):
        collector.log(step=step, **step_arrays(step))
    collector.flush()
    for closed in (False, True):
        if closed:
            collector.close()
        kept = open_run(tmp_path / "run").conservation
        assert kept.pending == kept.dropped == 0 and kept.left_out == 120 - kept.written > 0
    told = info(open_run(tmp_path / "run"))
    assert told["left_out"] == kept.left_out and told["states"] == {}
    assert main(["info", str(tmp_path / "run")]) == 0
    assert f"{kept.left_out} sequences, because of the budget" in capsys.readouterr().out


def test_a_writer_in_trouble_is_named_until_it_recovers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        collector.log(step=1, **step_arrays(1))
        assert collector.flush()
        broken_on(monkeypatch, "tokens")
        collector.log(step=2, **step_arrays(2))
        assert not collector.flush()  # its token rows are not on disk
        ((writer, why),) = open_run(run).states.items()
        assert writer.startswith("r00000-") and "ok -> degraded" in why and "No space left" in why
        assert open_run(run).writers["state"].to_list() == ["degraded"]
        assert main(["info", str(run)]) == 0
        assert "writer in trouble" in capsys.readouterr().out
        monkeypatch.undo()
        collector.log(step=3, **step_arrays(3))
        assert collector.flush()
        assert open_run(run).states == {}
    assert open_run(run).events.filter(event="state")["step"].to_list() == [2, 3]
