"""Faults in the settings of a run: from the table, and from the warnings of the trainer's dialect, each said once."""

import json
import re
from pathlib import Path

import pytest
from support.paths import ROOT
from support.recorded import recorded

from ratioscope.app.cli import main
from ratioscope.ingest.analysis.known_context import setting_faults

VERL = {"top_p": 0.9, "top_k": -1, "temperature": 1.0, "calculate_log_probs": False}


def test_a_table_row_names_the_key_and_its_value() -> None:
    info = {"trainer": "verl 0.9.1", "config": {"actor_rollout_ref": {"rollout": VERL}}}
    (found,) = setting_faults(info)
    assert found.code == "verl_truncated_sampling"
    assert "Found: actor_rollout_ref.rollout.top_p is 0.9." in found.words
    assert found.words.endswith("Set actor_rollout_ref.rollout.top_p=1.0.")


def test_a_warning_of_the_dialect_is_a_fault_and_stands_once() -> None:
    block = {"rollout_correction": {"rollout_is": "token", "rollout_is_threshold": 2.0}}
    config = {"algorithm": block, "actor_rollout_ref": {"rollout": VERL | {"top_p": 1.0}}}
    (found,) = setting_faults({"trainer": "verl 0.9.1", "config": config})
    assert found.code == "settings" and "calculate_log_probs is false" in found.statement
    args = {"vllm_importance_sampling_mode": "token_mask", "top_p": 0.9}
    said = [each.statement for each in setting_faults({"trainer": "trl 1.16.0", "config": {"args": args}})]
    assert len([text for text in said if "top_p" in text or "Top_p" in text]) == 1


def test_settings_that_the_trainer_would_reject_are_said_and_no_error() -> None:
    block = {"rollout_correction": {"rollout_is": "words"}}
    (found,) = setting_faults({"trainer": "verl 0.9.1", "config": {"algorithm": block}})
    assert "would reject these settings" in found.statement


def test_a_run_without_settings_has_no_fault(tmp_path: Path) -> None:
    assert setting_faults({}) == () and setting_faults({"trainer": "mine", "config": {"top_p": 0.9}}) == ()


def test_the_real_sample_runs_have_no_known_fault() -> None:
    for folder in (ROOT / "sample_data" / "runs").iterdir():
        assert setting_faults(json.loads((folder / "run.json").read_text())) == (), folder.name


def test_diagnose_prints_a_fault_of_the_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded("lcpp_q4_1", tmp_path / "run", steps=2)
    path = folder / "run.json"
    info = json.loads(path.read_text())
    info["trainer"] = "trl 1.9.0"
    info["config"] = {"args": {"vllm_enable_sleep_mode": True}}
    path.write_text(json.dumps(info))
    assert main(["diagnose", str(folder)]) == 0
    assert re.search(r"trl sleep drops weights +TRL 1.9.0 puts vLLM to sleep", capsys.readouterr().out)
    assert main(["diagnose", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["known_faults"][0]["because"]["trainer"] == "trl 1.9.0"
