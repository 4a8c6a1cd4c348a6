"""A folder with the logs of several runs becomes a folder of runs, each named as its run is."""

import json
import re
import shutil
from pathlib import Path

import pytest
from support.paths import ROOT

from ratioscope import open_run
from ratioscope.app.cli import USAGE, main
from ratioscope.ingest.importers.scalars.sources import BY_NAME, LogFiles, _each_named, logs_at

DATA = ROOT / "tests" / "data" / "scalars" / "settings"
WEEKS = DATA / "wandb"
"""Two offline runs that W&B wrote, named `good week` and `bad/week`."""


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if not path.name.startswith("."))


def test_a_folder_of_wandb_runs_is_imported_run_by_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(WEEKS), "-o", str(tmp_path / "runs"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)["runs"]
    assert [Path(each["run"]).name for each in said] == names(tmp_path / "runs") == ["bad-week", "good-week"]
    for name in ("bad-week", "good-week"):
        run = open_run(tmp_path / "runs" / name)
        assert run.name == name and run.steps == list(range(1, 31))
        assert run.info["config"]["actor_rollout_ref"]["rollout"]["top_p"] == (0.9 if name == "bad-week" else 1)


def test_a_run_that_is_there_is_told_and_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(WEEKS), "-o", str(tmp_path / "runs")]) == 0
    before = {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}
    assert main(["import", str(WEEKS), "-o", str(tmp_path / "runs")]) == 1
    assert "exists already" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in (tmp_path / "runs").rglob("*") if path.is_file()}


def test_a_log_that_cannot_be_read_ends_only_its_own_import(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(WEEKS, tmp_path / "logs")
    (tmp_path / "logs" / "run-empty.wandb").write_bytes(next(WEEKS.rglob("*.wandb")).read_bytes()[:7])
    assert main(["import", str(tmp_path / "logs"), "-o", str(tmp_path / "runs")]) == 1
    said = capsys.readouterr().out
    assert "run-empty: not imported: nothing of run-empty.wandb can be imported" in said and "2 runs of 3 in" in said
    assert names(tmp_path / "runs") == ["bad-week", "good-week"]


def test_runs_of_one_name_have_the_names_of_their_files_behind(tmp_path: Path) -> None:
    log = next(WEEKS.rglob("run-badweek.wandb"))
    for name in ("run-a", "run-b", "run-c"):
        shutil.copy(log, tmp_path / f"{name}.wandb")
    assert [each.name for each in logs_at(tmp_path)] == ["bad-week", "bad-week-run-b", "bad-week-run-c"]


@pytest.mark.parametrize(
    "name", ["..", "../../x", "/etc/passwd", " ", "a\x1b[31m", "sk-0123456789abcdefghij", "x" * 400]
)
def test_no_name_of_a_run_leads_out_of_the_folder_or_holds_a_secret(name: str, tmp_path: Path) -> None:
    logs = [LogFiles(BY_NAME["wandb"], (tmp_path / f"run-{place}.wandb",), name=name) for place in "ab"]
    found = [each.name for each in _each_named(logs)]
    assert len(set(found)) == 2 and all(re.fullmatch(r"\w[\w.-]*", each) and len(each) <= 120 for each in found)
    assert not any("0123456789" in each for each in found)


def test_one_name_for_several_runs_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["import", str(WEEKS), "-o", str(tmp_path / "runs"), "--name", "mine"]) == USAGE
    assert "which keep their names" in capsys.readouterr().err and not (tmp_path / "runs").exists()


def test_event_files_are_one_run_for_each_folder_with_its_hyperparameters(tmp_path: Path) -> None:
    assert [(len(each.files), each.files[0].parent.name) for each in logs_at(DATA / "events")] == [
        (2, "1795974953.4277802")
    ]
    for name in ("mon", "tue"):
        shutil.copytree(DATA / "events", tmp_path / name)
    assert [(each.name, len(each.files)) for each in logs_at(tmp_path)] == [("mon", 2), ("tue", 2)]
