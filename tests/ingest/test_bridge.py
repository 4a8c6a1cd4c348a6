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
        "token TIS 2 (truncate token at 2) bridges the gap best over 60 steps (high confidence): it lowers the gradient's squared"
        " error by 39%; its settings are below"
    )
    assert dialect("trl").parse({"vllm_importance_sampling_mode": "token_truncate"}).corrected


def test_only_corrections_that_the_trainer_can_express_are_recommended(tmp_path: Path) -> None:
    run = uncorrected_run(tmp_path)
    for trainer in ("trl", "verl", "slime", "miles", "nemo_rl", "areal", "skyrl"):
        found = bridge(run, trainer)
        assert found is not None and found.settings and found.advice is not None, trainer
        assert found.name in {each.name for each in CORRECTIONS}
        assert trainer != "miles" or "slime." not in found.settings


def test_a_trainer_without_a_dialect_gets_the_name_of_the_correction(tmp_path: Path) -> None:
    found = bridge(uncorrected_run(tmp_path), "openrlhf")
    assert found is not None and found.settings == "" and found.advice is not None and found.best
    assert found.words.startswith(found.best)


def test_the_runs_own_correction_stays_or_gives_way_with_what_is_gained() -> None:
    found = bridge(STALE, "trl")
    assert found is not None and found.own == "truncate token at 3" and not found.best
    assert found.words == (
        "over 60 steps, the run's own truncate token at 3 clips 0.559% of the tokens and lowers the gradient's squared error by"
        " 39.3%; truncate token at 2 would lower it by a further 0.2%, which is no difference; the cause stays. Keep it"
    )


def test_a_worse_correction_that_is_on_is_replaced(tmp_path: Path) -> None:
    mode = {"vllm_importance_sampling_mode": "sequence_truncate", "vllm_importance_sampling_clip_max": 2.0}
    found = bridge(uncorrected_run(tmp_path, vllm_importance_sampling_correction=True, **mode), "trl")
    assert found is not None and found.own == "truncate sequence at 2" and found.advice is not None
    assert found.words.startswith(
        "in place of truncate sequence at 2, token TIS 2 (truncate token at 2) bridges the gap"
    )
    assert "it lowers the gradient's squared error by " in found.words and found.advice.gain > 0.5
    assert "raises the gradient's squared error by" in found.advice.own and "the cause stays." in found.advice.own


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
