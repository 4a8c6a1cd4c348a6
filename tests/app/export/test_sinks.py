"""What `ratioscope sync` sends: read back by our own readers, or taken by a stand-in of a logger's package."""

import json
import math
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from support.paths import ROOT

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.app.export.sinks.logger_table import LOGGERS, failing_of, logger_of
from ratioscope.app.export.wandb.rows import step_rows
from ratioscope.app.export.wandb.session import failing
from ratioscope.errors import ConfigError, RatioscopeError

RUN = ROOT / "sample_data" / "runs" / "trl-vllm-stale"


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def values_sent() -> dict[tuple[int, str], float]:
    """(step, <gap>/<metric>) -> the value that is sent."""
    return {(row.step, name): value for row in step_rows(open_run(RUN), False) for name, value in row.scalars.items()}


def test_what_is_sent_to_tensorboard_is_imported_with_equal_values(tmp_path: Path) -> None:
    assert main(["sync", str(RUN), "--to", f"tensorboard:{tmp_path / 'tb'}"]) == 0
    assert main(["import", str(tmp_path / "tb"), "-o", str(tmp_path / "back")]) == 0
    back = open_run(tmp_path / "back")
    found = {(row["step"], row["metric"]): row["value"] for row in back.logged.to_dicts() if row["metric"]}
    assert len(found) > 100 and found == pytest.approx(values_sent(), rel=6e-8, abs=1e-38)
    assert back.steps == open_run(RUN).steps and back.gaps == open_run(RUN).gaps
    severities = back.logged.filter(name="ratioscope/severity")["value"].unique().sort().to_list()
    assert severities and set(severities) <= {0.0, 1.0, 2.0}


def test_a_second_sync_sends_what_is_new_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ("sent ", "nothing new"):
        assert main(["sync", str(RUN), "--to", f"tensorboard:{tmp_path / 'tb'}"]) == 0
        assert words in capsys.readouterr().out
    assert len(list((tmp_path / "tb").iterdir())) == 1
    assert main(["sync", str(RUN), "--to", f"tensorboard:{tmp_path / 'other'}"]) == 0
    assert len(list((tmp_path / "other").iterdir())) == 1


def test_prometheus_reads_the_newest_step(tmp_path: Path) -> None:
    file = tmp_path / "run.prom"
    assert main(["sync", str(RUN), "--to", f"prometheus:{file}"]) == 0
    lines = file.read_text().splitlines()
    samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    newest = max(step for step, _ in values_sent())
    name = open_run(RUN).name
    assert float(samples[f'ratioscope_step{{run="{name}"}}']) == newest
    sent = {f'ratioscope_kl_k3{{run="{name}",gap="mismatch"}}': values_sent()[newest, "mismatch/kl_k3"]}
    assert {key: float(samples[key]) for key in sent} == sent
    assert sum(line.startswith("# TYPE ratioscope_kl_k3 gauge") for line in lines) == 1
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_name_that_is_a_sentence_is_sent_as_a_digest(tmp_path: Path) -> None:
    shutil.copytree(RUN, run := tmp_path / "run")
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "name": "What is 2 + 2?"}))
    for to in (f"prometheus:{tmp_path / 'run.prom'}", f"tensorboard:{tmp_path / 'tb'}"):
        assert main(["sync", str(run), "--to", to]) == 0
    sent = [(tmp_path / "run.prom").read_bytes(), *(path.read_bytes() for path in (tmp_path / "tb").iterdir())]
    assert b"text:38d46ad3618826cf" in sent[0] and not any(b"What is" in content for content in sent)


class Taken(ModuleType):
    """A stand-in for a logger's package, which keeps what it is given."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.rows: list[tuple[int, dict[str, float]]] = []
        self.opened: dict[str, Any] = {}
        self.ended = False
        self.__spec__ = SimpleNamespace(name=name)  # type: ignore[assignment]

    def init(self, **options: Any) -> None:
        self.opened = options

    def log(self, numbers: dict[str, float], step: int) -> None:
        if self.opened["project"] == "full":
            raise OSError("no space left on device")
        self.rows.append((step, numbers))

    def finish(self) -> None:
        self.ended = True


@pytest.mark.parametrize("name", ["trackio", "swanlab"])
def test_a_logger_is_given_every_step_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package = Taken(name)
    monkeypatch.setitem(sys.modules, name, package)
    assert main(["sync", str(RUN), "--to", f"{name}:mine"]) == 0
    assert package.opened["project"] == "mine" and package.ended
    found = {(step, key.removeprefix("ratioscope/")): value for step, row in package.rows for key, value in row.items()}
    assert {key: value for key, value in found.items() if key[1] != "severity"} == values_sent()
    assert all(math.isfinite(value) for value in found.values())


def test_a_failing_logger_is_told_in_a_line_and_steps_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = Taken("trackio")
    monkeypatch.setitem(sys.modules, "trackio", package)
    for _ in range(2):
        assert main(["sync", str(RUN), "--to", "trackio:full"]) != 0
        assert "trackio could not take a row: OSError: no space left" in " ".join(capsys.readouterr().err.split())
    assert package.ended and not package.rows


@pytest.mark.parametrize("failing", [failing, partial(failing_of, "MLflow")])
def test_an_error_of_a_logger_is_told_without_the_login_in_its_address(failing: Any) -> None:
    with pytest.raises(RatioscopeError, match="http://.*@host/api failed") as told, failing("take a row"):
        raise OSError("POST http://ann:hunTer2zz9@host/api failed, api_key=hunTer2zz9")
    assert "hunTer2zz9" not in str(told.value)


def test_mlflow_finds_its_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    logged: list[tuple[str, str, float, int]] = []
    runs: list[SimpleNamespace] = []

    class Client:
        def __init__(self, tracking_uri: str) -> None:
            self.uri = tracking_uri

        def get_experiment_by_name(self, name: str) -> SimpleNamespace:
            return SimpleNamespace(experiment_id="7")

        def search_runs(self, experiments: list[str], filter_string: str, max_results: int) -> list[SimpleNamespace]:
            return [run for run in runs if run.tag in filter_string]

        def create_run(self, experiment: str, run_name: str, tags: dict[str, str]) -> SimpleNamespace:
            runs.append(SimpleNamespace(info=SimpleNamespace(run_id="r1"), tag=tags["ratioscope.id"]))
            return runs[-1]

        def log_metric(self, run: str, key: str, value: float, step: int) -> None:
            logged.append((run, key, value, step))

        def set_terminated(self, run: str) -> None:
            pass

    package = Taken("mlflow")
    package.tracking = SimpleNamespace(MlflowClient=Client)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", package)
    logger = logger_of("mlflow:sqlite:///m.db")[0].opened("sqlite:///m.db", "ratioscope-1", "name")
    logger.write(3, {"ratioscope/mismatch/kl_k3": 0.5})
    logger_of("mlflow:x")[0].opened("x", "ratioscope-1", "name").write(4, {"ratioscope/mismatch/kl_k3": 0.25})
    assert len(runs) == 1 and [(row[0], row[2], row[3]) for row in logged] == [("r1", 0.5, 3), ("r1", 0.25, 4)]


def test_a_missing_package_and_an_unknown_logger_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.app.export.sinks.logger_table.find_spec", lambda name: None)
    for each in LOGGERS:
        if each.name in ("mlflow", "trackio", "swanlab"):
            with pytest.raises(RatioscopeError, match=rf"ratioscope\[{each.name}\]"):
                each.opened("place", "id", "name")
    for odd in ("wandb:project", "tensorboard", "tensorboard:"):
        with pytest.raises(ConfigError, match="wandb sync"):
            logger_of(odd)
