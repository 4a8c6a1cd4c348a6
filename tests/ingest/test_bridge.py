"""The correction to use meanwhile: in the trainer's own syntax, or none where weights would be no importance weights."""

import json
from pathlib import Path

import pytest
from support.paths import ROOT
from support.recorded import recorded
from support.uncorrected import uncorrected_run

import ratioscope
from ratioscope.app.cli import main
from ratioscope.ingest.analysis.correction_effects import correction_effects, effect_frame
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import Bridge, bridge_of
from ratioscope.metrics.corrections.correction import CORRECTIONS
from ratioscope.metrics.dialects import dialect

STALE = ROOT / "sample_data" / "runs" / "trl-vllm-stale"


def bridge(folder: Path, trainer: str | None) -> Bridge | None:
    run = ratioscope.open_run(folder)
    return bridge_of(run, diagnosis_of(run), verdict_of(run), trainer)


def test_old_weights_are_bridged_in_the_syntax_of_the_trainer(tmp_path: Path) -> None:
    found = bridge(uncorrected_run(tmp_path), "trl")
    assert found is not None and found.helps and found.advice is not None
    assert found.settings.startswith("GRPOConfig(")
    assert found.words == (
        "token TIS 2 (truncate token at 2) bridges the gap best at the 12 steps that were read (medium confidence); its settings"
        " are below"
    )
    assert dialect("trl").parse({"vllm_importance_sampling_mode": "token_truncate"}).corrected


def test_only_corrections_that_the_trainer_can_express_are_recommended(tmp_path: Path) -> None:
    run = uncorrected_run(tmp_path)
    for trainer in ("trl", "verl", "slime", "miles", "nemo_rl", "areal", "skyrl"):
        found = bridge(run, trainer)
        assert found is not None and found.settings and found.advice is not None, trainer
        assert found.advice.best in {each.name for each in CORRECTIONS}
        assert trainer != "miles" or "slime." not in found.settings


def test_a_trainer_without_a_dialect_gets_the_name_of_the_correction(tmp_path: Path) -> None:
    found = bridge(uncorrected_run(tmp_path), "openrlhf")
    assert found is not None and found.settings == "" and found.advice is not None and found.advice.best
    assert found.words.startswith(found.advice.best)


def test_no_correction_is_offered_for_shifted_lists(tmp_path: Path) -> None:
    found = bridge(recorded("vllm_rollout_shift1", tmp_path / "run"), "trl")
    assert found is not None and not found.helps and found.advice is None
    assert found.words.startswith("no correction helps")


def test_a_run_without_a_likely_cause_needs_no_bridge(tmp_path: Path) -> None:
    assert bridge(recorded("lcpp_q4_1", tmp_path / "run"), "trl") is None


def test_effects_of_some_steps_are_those_rows_of_all_steps() -> None:
    run = ratioscope.open_run(STALE)
    some = run.steps[:3]
    whole = effect_frame(correction_effects(run, CORRECTIONS[:2]).sums, ("step",))
    part = effect_frame(correction_effects(run, CORRECTIONS[:2], steps=some).sums, ("step",))
    assert part.equals(whole.filter(whole["step"].is_in(list(some))))


def test_diagnose_prints_the_remedy_of_the_runs_own_trainer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(uncorrected_run(tmp_path))
    assert main(["diagnose", run]) == 0
    printed = capsys.readouterr().out
    assert "do in trl" in printed and "steps_per_generation" in printed
    assert "meanwhile" in printed and "    vllm_importance_sampling_mode=" in printed
    assert main(["diagnose", run, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["trainer"] == "trl" and plain["remedies"]["version_lag"]["keys"] == ["steps_per_generation"]
    assert plain["meanwhile"]["settings"].startswith("GRPOConfig(")
    assert plain["reference"]["published"]["class"] == "dense small bf16"
