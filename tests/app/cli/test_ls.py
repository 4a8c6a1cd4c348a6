"""`ratioscope ls`: the runs below a folder with the verdicts of the Runs page, read once and never diagnosed."""

import json
import os
import shutil
from pathlib import Path

import pytest
from support.statistics_runs import write_statistics_run

from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.cli.commands import ls
from ratioscope.app.cli.commands.demo import sample_runs
from ratioscope.app.dashboard.model.served_folder import Summaries
from ratioscope.app.pages.folder import summary_of
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis import judged_verdict
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.run import Run, open_run
from ratioscope.process import here

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two sample runs, one of them below a sweep, and a run with a gap that is too large."""
    root = tmp_path / "runs"
    samples = sample_runs()
    shutil.copytree(samples["healthy"], root / "good")
    shutil.copytree(samples["stale"], root / "sweep" / "stale")
    write_statistics_run(root / "sweep" / "large", 12, size=0.3, rise=1.0)
    return root


def listed(capsys: Captured, *argv: object) -> dict[str, dict[str, object]]:
    assert main(["ls", *map(str, argv), "--json"]) == cli.OK
    return {row["run"]: row for row in json.loads(capsys.readouterr().out)}


def test_a_row_has_the_verdict_the_newest_step_and_the_gap_of_its_run(runs: Path, capsys: Captured) -> None:
    rows = listed(capsys, runs)
    assert sorted(rows) == ["good", "sweep/large", "sweep/stale"]
    for name, row in rows.items():
        run = open_run(runs / name)
        known = summary_of(run)
        assert (row["severity"], row["found"], row["since"]) == (known.severity, known.title, known.since)
        assert (row["newest_step"], row["steps"], row["gap"]) == (max(run.steps), len(run.steps), known.gap)
        assert row["kl_k3"] == known.kl_k3 and row["error"] is None and row["state"] == "ended"
    assert main(["ls", str(runs)]) == cli.OK
    table = capsys.readouterr().out
    assert table.index("sweep/stale") < table.index("good") and "● healthy" in table and "diagnose RUN" in table


def _told_of(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The runs that the verb opens from now on."""
    opened: list[Path] = []

    def noted(path: Path) -> Run:
        opened.append(path)
        return open_run(path)

    monkeypatch.setattr(ls, "opened", noted)
    return opened


def test_no_run_is_diagnosed_and_one_that_did_not_change_is_not_opened_again(
    runs: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    def diagnosed(*_: object) -> None:
        raise AssertionError("a list of runs makes no diagnosis")

    monkeypatch.setattr(judged_verdict, "diagnosis_of", diagnosed)
    first = listed(capsys, runs)
    assert not any(row["diagnosed"] for row in first.values())
    opened = _told_of(monkeypatch)
    assert listed(capsys, runs) == first and opened == []
    (runs / "good" / "ratioscope.toml").write_text("")
    assert listed(capsys, runs) == first and opened == [runs / "good"]


def test_a_verdict_that_the_dashboard_made_with_a_diagnosis_is_listed_as_such(runs: Path, capsys: Captured) -> None:
    known, good = Summaries(), str(runs / "good")
    known.state(good, here(), 0.0)
    known.read_some([good], 60.0)
    rows, page = listed(capsys, runs), known.known(good)
    assert page is not None and (rows["good"]["severity"], rows["good"]["found"]) == (page.severity, page.title)
    assert rows["good"]["diagnosed"] and not rows["sweep/stale"]["diagnosed"]


def test_a_run_that_grows_is_read_each_time(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = _told_of(monkeypatch)
    with Collector(tmp_path / "runs" / "a", writer="thread") as collector:
        for step in range(2):
            collector.log(step=step, rollout_logprobs=[[-1.0, -2.0]], old_logprobs=[[-1.1, -2.0]])
            collector.flush(timeout=60)
            row = listed(capsys, tmp_path / "runs")["a"]
            assert (row["state"], row["newest_step"], len(opened)) == ("live", step, step + 1)
    for _ in range(2):
        assert listed(capsys, tmp_path / "runs")["a"]["state"] == "ended" and len(opened) == 3


def test_a_damaged_copy_is_made_again_and_a_damaged_run_is_a_row(runs: Path, capsys: Captured) -> None:
    first, cache = listed(capsys, runs), cache_folder()
    assert cache is not None
    for kept in cache.iterdir():
        kept.write_bytes(b"PAR1 damaged")
    assert listed(capsys, runs) == first
    (runs / "good" / "run.json").write_text('{"schema_version": 99, "attempts": []}')
    row = listed(capsys, runs)["good"]
    assert row["severity"] is None and row["kl_k3"] is None and "schema version 99" in str(row["error"])
    assert main(["ls", str(runs)]) == cli.OK and "unreadable" in capsys.readouterr().out


def test_a_folder_without_a_run_is_an_error_that_says_what_is_wanted(
    tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["ls", str(tmp_path)]) == cli.UNREADABLE
    assert "has no run in it; wanted a folder that contains runs" in capsys.readouterr().err
    write_statistics_run(tmp_path / "runs" / "a", 2)
    assert main(["ls", str(tmp_path / "rnus")]) == cli.UNREADABLE
    assert "rnus does not exist; did you mean" in capsys.readouterr().err
    monkeypatch.chdir(tmp_path / "runs")
    assert [*listed(capsys)] == ["a"] and len(listed(capsys, "a", tmp_path / "runs")) == 1
    assert os.listdir(tmp_path / "runs") == ["a"]
