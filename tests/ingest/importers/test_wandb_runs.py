"""Runs of W&B become runs of ours: a log that W&B itself has written, and pages of a stand-in for its client."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.imported import rejected

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.errors import ConfigError, SourceError
from ratioscope.ingest.importers.samples import Rejected
from ratioscope.ingest.importers.scalars.number_row import LogChoices, Logged
from ratioscope.ingest.importers.scalars.wandb_online import PAGE, TRIES, is_online, online_rows

CONFIG = {"rollout": {"temperature": 0.7, "dtype": "bfloat16"}, "lr": 1e-06, "api_key": "sk-0123456789abcdefghij"}
WRITE = (
    f"CONFIG = {CONFIG}"
    + """
import wandb
settings = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True, disable_git=True)
run = wandb.init(project="p", id="theirs", mode="offline", settings=settings, config=CONFIG)
run.config.update({"seed": 7})
for step in range(1, 41):
    row = {"training/global_step": step, "rollout_corr/k3_kl": step / 1000, "actor/entropy": float("nan"), "note": "text"}
    run.log({**row, "h": wandb.Histogram([1.0, 2.0])} if step == 3 else row)
run.log({"val/score": 1.0})
run.finish()
wandb.teardown()
"""
)


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of 41 rows, the last without the trainer's step."""
    home = tmp_path_factory.mktemp("wandb")
    places = {f"WANDB_{name}": str(home) for name in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR")}
    environment = os.environ | places | {"HOME": str(home), "WANDB_ERROR_REPORTING": "false"}
    subprocess.run([sys.executable, "-c", WRITE], env=environment, check=True, capture_output=True, timeout=300)
    return next(home.rglob("run-theirs.wandb"))


def test_a_log_of_wandb_becomes_a_run_by_the_steps_of_its_trainer(
    log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["import", str(log.parent), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1", "--json"]
    assert main(arguments) == 1  # the row without a step
    said = json.loads(capsys.readouterr().out)
    assert (said["format"], said["steps"], said["values"], said["not_finite"]) == ("wandb", 40, 80, 40)
    assert said["no_numbers"] == {"note": 40, "h": 1} and said["drawn"] == {"mismatch/kl_k3": "rollout_corr/k3_kl"}
    (row,) = rejected(tmp_path / "run")
    assert (row["row"], row["field"]) == (40, "training/global_step")
    run = open_run(tmp_path / "run")
    assert run.metrics()["mismatch/kl_k3"].to_list() == [step / 1000 for step in range(1, 41)]
    assert all(map(math.isnan, run.logged.filter(name="actor/entropy")["value"]))


def test_the_settings_of_a_run_are_kept_without_its_secrets(log: Path, tmp_path: Path) -> None:
    main(["import", str(log.parent), "-o", str(tmp_path / "run"), "--dialect", "verl@0.9.1"])
    info = open_run(tmp_path / "run").info
    own = {
        "rollout": CONFIG["rollout"],
        "lr": 1e-06,
        "seed": 7,
        "api_key": "[redacted]",
        "imported_from": log.parent.name,
    }
    assert info["config"] == own and info["redacted"] == ["api_key"]
    assert b"sk-0123456789" not in b"".join(
        path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()
    )


def test_the_settings_of_a_run_of_the_server_are_kept_too() -> None:
    choice = LogChoices()
    settings = {"lr": 1e-06, "_wandb": {"cli_version": "0"}}
    pages = {"lastHistoryStep": 1, "scan_history": lambda **_: iter([{"_step": 1, "step": 1, "loss": 0.5}])}
    run = SimpleNamespace(config=settings, **pages)
    rows = list(online_rows(Path("wandb://us/project/run"), choice, api=SimpleNamespace(run=lambda name: run)))
    assert rows and choice.config == {"lr": 1e-06}


def test_a_cut_log_gives_the_rows_before_the_cut_and_says_so(log: Path, tmp_path: Path) -> None:
    data = log.read_bytes()
    within = data.index(b"rollout_corr/k3_kl", len(data) // 2) + 5  # half of the file may end where a record does
    (tmp_path / "run-cut.wandb").write_bytes(data[:within])
    assert main(["import", str(tmp_path / "run-cut.wandb"), "-o", str(tmp_path / "run")]) == 1
    assert "ends within a record" in rejected(tmp_path / "run")[-1]["reason"]
    assert 5 < len(open_run(tmp_path / "run").steps) < 40


class StandIn:
    """A stand-in for wandb.Api, and for the run that it gives: rows by _step, and failures that are due."""

    def __init__(self, rows: list[dict[str, Any]], failures: int = 0) -> None:
        self.rows, self.failures, self.asked = rows, failures, list[tuple[int, int]]()
        self.lastHistoryStep = max((row["_step"] for row in rows), default=-1)

    def run(self, name: str) -> "StandIn":
        if name != "team/project/abc":
            raise ValueError(f"could not find run <{name}>")
        return self

    def scan_history(self, min_step: int, max_step: int, page_size: int) -> list[dict[str, Any]]:
        self.asked.append((min_step, max_step))
        if self.failures:
            self.failures -= 1
            raise ConnectionError("502 Bad Gateway")
        return [row for row in self.rows if min_step <= row["_step"] < max_step]


def rows_of(count: int) -> list[dict[str, Any]]:
    """Rows of which every second number is missing, as where a trainer logs other things between."""
    return [
        {"_step": 2 * at, "_runtime": 1.0, "train/global_step": at, "loss": at / 4, "s": {"_type": "histogram"}}
        for at in range(count)
    ]


SOURCE = Path("wandb://team/project/abc")


def test_every_page_is_read_once_and_in_order() -> None:
    api = StandIn(rows_of(PAGE + 7))
    found = [row for row in online_rows(SOURCE, LogChoices(), api=api) if isinstance(row, Logged)]
    assert [(row.step, row.values) for row in found] == [(at, {"loss": at / 4}) for at in range(PAGE + 7)]
    assert api.asked == [(0, PAGE), (PAGE, 2 * PAGE), (2 * PAGE, 2 * PAGE + 13)]


def test_a_page_that_fails_is_asked_for_again_from_its_first_row() -> None:
    waited: list[float] = []
    api = StandIn(rows_of(9), failures=TRIES - 1)
    assert len(list(online_rows(SOURCE, LogChoices(), api=api, sleep=waited.append))) == 9
    assert api.asked == [(0, 17)] * TRIES and waited == [1.0, 2.0, 4.0]
    with pytest.raises(SourceError, match="502 Bad Gateway"):
        list(online_rows(SOURCE, LogChoices(), api=StandIn(rows_of(9), failures=TRIES), sleep=waited.append))


def test_a_row_without_a_step_and_a_name_of_no_run_are_told() -> None:
    rows = [*rows_of(3), {"_step": 9, "val": 1.0}]
    (odd,) = [row for row in online_rows(SOURCE, LogChoices(), api=StandIn(rows)) if isinstance(row, Rejected)]
    assert (odd.row, odd.field) == (3, "train/global_step")
    with pytest.raises(ConfigError, match="ENTITY/PROJECT/RUN"):
        list(online_rows(Path("wandb://team/abc"), LogChoices(), api=StandIn([])))
    with pytest.raises(SourceError, match="could not find run"):
        list(online_rows(Path("wandb://team/project/other"), LogChoices(), api=StandIn([])))
    assert is_online(SOURCE) and not is_online(Path("wandb/offline-run-1"))
