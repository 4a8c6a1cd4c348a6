"""docs/mytrainer.py, a trainer in a hundred lines, and `ratioscope attach --check` of a script of one's own."""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from support.paths import ROOT

import ratioscope
from ratioscope.app.cli import main

Captured = pytest.CaptureFixture[str]
EXAMPLE = ROOT / "docs" / "mytrainer.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    pytest.importorskip("torch")
    spec = importlib.util.spec_from_file_location("mytrainer", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path_factory.mktemp("mine") / "run"
    module.train(str(folder))
    return ratioscope.open_run(folder)


def test_the_example_is_recorded_whole(run: Any) -> None:
    assert run.policies == ("rollout", "old", "current") and run.info["trainer"] == "mytrainer"
    rows = run.records().collect()
    assert len(rows) == 6 * 16 and rows["sequence_id"].n_unique() == 96 and rows["group_id"].n_unique() == 24
    assert not run.quarantined and run.conservation.dropped == 0


def test_the_example_shows_which_engine_is_late_and_by_how_much(run: Any) -> None:
    lags = set(run.metrics(by=("step", "lag")).select("step", "lag").rows())
    assert lags == {(step, "0") for step in range(1, 7)} | {(step, "1") for step in (2, 4, 6)}
    gaps = {
        (row["step"], row["replica"]): row["mismatch/kl_k3"] for row in run.metrics(by=("step", "replica")).to_dicts()
    }
    late = [gaps[step, "b"] for step in (2, 4, 6)]
    others = [gap for key, gap in gaps.items() if key not in {(2, "b"), (4, "b"), (6, "b")}]
    assert min(late) > 100 * max(others)


def test_the_example_passes_its_own_check(capsys: Captured) -> None:
    assert main(["attach", str(EXAMPLE), "--check", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["would_record"] and told["problems"] == told["advice"] == [] and told["missing"] == ["loss_mask"]
    assert len(EXAMPLE.read_text().splitlines()) < 120


HEAD = "import ratioscope\nraise SystemExit('it ran')\ncollector = ratioscope.Collector('runs/mine')\n"
SCRIPTS: dict[str, tuple[str, str]] = {
    "no call": ("", "no collector.log(...) is called, so nothing would be recorded"),
    "one side": (
        "collector.log(step=1, old_logprobs=old, mask=mask)",
        "log gets old_logprobs; wanted at least two of rollout_logprobs",
    ),
    "no step": ("collector.log(rollout_logprobs=a, old_logprobs=b)", "log gets no step"),
    "a wrong name": ("collector.log(step=1, rollout_logprobs=a, old_logprobs=b, masks=m)", "log has no argument masks"),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_a_script_lacks_is_said_and_it_is_not_run(name: str, tmp_path: Path, capsys: Captured) -> None:
    call, words = SCRIPTS[name]
    script = tmp_path / "mine.py"
    script.write_text(HEAD + call)
    assert main(["attach", str(script), "--check"]) == 1
    out = " ".join(capsys.readouterr().out.split())
    assert "would not be recorded" in out and words in out and "it ran" not in out


def test_what_would_slow_a_trainer_or_be_left_out_is_said(tmp_path: Path, capsys: Captured) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        HEAD + "collector.log(step=1, rollout_logprobs=a.tolist(), old_logprobs=b, mask=m)\nlogger.log(step=1)\n"
    )
    assert main(["attach", str(script), "--check"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    for words in (
        "rollout_logprobs takes .tolist(): it waits for the device",
        "close() is never called",
        "rollout_versions",
        "staleness",
    ):
        assert words in out
    script.write_text(HEAD + "collector.log(**values)\ncollector.close()\n")
    assert main(["attach", str(script), "--check"]) == 0
    assert "their names are not seen" in capsys.readouterr().out


def test_a_file_that_is_no_python_is_told_so(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "mine.py").write_text("def (")
    assert main(["attach", str(tmp_path / "mine.py"), "--check"]) == 2
    assert "mine.py is no Python" in " ".join(capsys.readouterr().err.split())
