"""A run of November 2026, its baseline, limits and saved view are read as they were then."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.ingest.analysis.saved_views import saved_views

FROZEN = Path(__file__).parent / "2026_11"
RUN = FROZEN / "tonight"
TOLD: dict[str, Any] = json.loads((FROZEN / "info.json").read_text())
WORDS = {
    "attempts",
    "path",
    "unavailable",
    "notes",
    "digest",
    "severity",
    "finding",
    "verdict",
    "diagnosis",
    "metrics_unavailable",
}
"""Members of `info --json` whose values may change: a place, sentences, judgements, the key of a cache, and hidden
steps, which are told apart since."""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    baselines = tmp_path / "config" / "ratioscope" / "baselines"
    baselines.mkdir(parents=True)
    shutil.copy(FROZEN / "frozen.json", baselines)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_run_opens_with_the_attempts_and_steps_of_then() -> None:
    run = open_run(RUN)
    assert (run.name, run.steps, run.attempts) == ("tonight", [1, 2], {0: 1, 1: 2})
    assert run.metrics()["mismatch/kl_k3"].is_not_nan().all()
    assert [view.name for view in saved_views(run)] == ["worst steps"]


def test_every_fact_that_info_told_then_is_told_today(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", str(RUN), "--json"]) == 0
    today = json.loads(capsys.readouterr().out)
    assert today.keys() >= TOLD.keys()
    for name in TOLD.keys() - WORDS:
        assert _holds(today[name], TOLD[name]), name
    assert today["attempts"]["number"] == TOLD["attempts"]["number"]
    assert sum(each["steps"] for each in today["attempts"]["shadowed"]) == TOLD["attempts"]["shadowed"][0]["steps"]


def test_the_limits_and_the_baseline_are_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(RUN), "--limits", str(FROZEN / "limits.toml")]) == 0
    assert main(["baseline", "show", "frozen"]) == 0
    assert "measured on" in capsys.readouterr().out


def _holds(today: Any, then: Any) -> bool:
    """True if today's value has all of then's: members may be added, at any depth."""
    if isinstance(then, dict):
        return isinstance(today, dict) and all(name in today and _holds(today[name], then[name]) for name in then)
    if isinstance(then, list):
        return len(today) == len(then) and all(map(_holds, today, then))
    return bool(today == then)
