"""Whether the run's own correction is on: settings on record, carried out on log-probs and held against the loss mask."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.paths import ROOT
from support.real_runs import records
from support.run_folders import by_step

import ratioscope
from ratioscope.app.cli import main
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis import evidence
from ratioscope.ingest.analysis.correction_ranking import refuted
from ratioscope.ingest.analysis.diagnosis import diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import known_context
from ratioscope.ingest.analysis.own_correction import OwnCorrection, no_settings, own_correction_of, own_settings
from ratioscope.record import MASK_REASONS

Lists = list[Any]
VERL = {"algorithm": {"rollout_correction": {"rollout_rs": "token_k1", "rollout_rs_threshold": "0.5_2.0"}}}
TRL = {
    "args": {"use_vllm": True, "vllm_importance_sampling_mode": "token_mask", "vllm_importance_sampling_clip_max": 2.0}
}


def written(
    folder: Path, trainer: str, config: Any, loss_mask: Callable[[Lists], Lists] | None, reason: int | None = None
) -> Path:
    """Eight steps of a run with stale weights, with settings and a loss mask of a trainer, whose advantages are all -1.

    loss_mask: log-ratio -> kept. reason: number in MASK_REASONS of every token; None records none.
    """
    with Collector(folder, trainer=trainer, config=config, strict=True) as collector:
        for part in by_step(records("trl_vllm_stale4"))[-8:]:
            rows = part.to_pydict()
            pairs = zip(rows["old_logprobs"], rows["rollout_logprobs"], strict=True)
            kept: Lists = [
                np.ones(len(old), bool) if loss_mask is None else loss_mask(np.subtract(old, low)) for old, low in pairs
            ]
            collector.log(
                step=rows["step"][0], minibatch=rows["minibatch"][0], sequence_ids=rows["sequence_id"],
                rollout_logprobs=rows["rollout_logprobs"], old_logprobs=rows["old_logprobs"],
                loss_mask=None if loss_mask is None else kept, current_logprobs=rows["old_logprobs"],
                advantages=np.full(len(kept), -1.0),
                mask_reasons=None if reason is None else [np.full(len(each), reason, np.int8) for each in kept],
            )  # fmt: skip
        collector.flush(timeout=120)
    return folder


def found(folder: Path) -> OwnCorrection:
    run = ratioscope.open_run(folder)
    return own_correction_of(run, run.steps)


def everything(x: Any) -> Any:
    return np.ones(len(x), bool)


def inside(x: Any) -> Any:
    return np.abs(x) <= np.log(2)


def test_settings_that_mask_and_a_mask_without_masked_tokens_are_a_correction_that_is_not_on(tmp_path: Path) -> None:
    own = found(written(tmp_path / "run", "verl 0.9.1", VERL, everything))
    assert own.state == "not on" and own.masked_on_record == 0
    assert own.masked is not None and own.masked > 0.01
    assert own.words.startswith("not on: the settings on record mask ")


def test_page_verb_and_diagnosis_refute_it_over_the_same_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evidence, "MOST_STEPS", 2)
    run = ratioscope.open_run(written(tmp_path / "run", "verl 0.9.1", VERL, everything))
    told = known_context(run, diagnosis_of(run), verdict_of(run)).correction.refuted
    assert told == refuted(run) and told.startswith("at the ") and "not on: " in told


def test_the_same_settings_with_their_mask_on_record_are_on_and_the_shares_agree(tmp_path: Path) -> None:
    own = found(written(tmp_path / "run", "verl 0.9.1", VERL, inside))
    assert own.state == "on"
    assert own.masked == pytest.approx(own.masked_on_record, rel=1e-3)  # float32 at the bound
    assert "the run's own correction removes" in own.short


def test_a_mask_that_holds_few_of_the_tokens_is_another_filter_and_not_the_correction(tmp_path: Path) -> None:
    def rarely(x: Any) -> Any:
        return np.abs(x) <= np.log(6)

    own = found(written(tmp_path / "run", "verl 0.9.1", VERL, rarely))
    assert own.masked is not None and own.masked_on_record is not None
    assert own.state == "not on" and 0 < own.masked_on_record < own.masked / 2


def test_weights_leave_no_trace_and_their_shares_are_computed(tmp_path: Path) -> None:
    own = found(written(tmp_path / "run", "trl 1.16.0", TRL, everything))
    assert own.state == "weights only" and own.removed is not None and own.removed > 0.005
    rows = [row for part in by_step(records("trl_vllm_stale4"))[-8:] for row in part.to_pylist()]
    ratios = np.concatenate([np.subtract(row["old_logprobs"], row["rollout_logprobs"]) for row in rows])
    assert own.removed == pytest.approx(float((np.exp(ratios) > 2).mean()), rel=1e-3)


def test_without_a_loss_mask_nothing_is_claimed(tmp_path: Path) -> None:
    run = ratioscope.open_run(written(tmp_path / "run", "verl 0.9.1", VERL, None))
    own = own_correction_of(run, run.steps)
    assert own.state == "not visible" and own.masked_on_record is None
    assert own.words.endswith("log loss_mask to see it")


def test_without_settings_the_line_to_record_is_named(tmp_path: Path) -> None:
    own = found(written(tmp_path / "run", "trl 1.16.0", {"learning_rate": 1e-6}, inside))
    assert own.state == "no settings" and "Collector(run_dir" in own.words
    assert own.short.startswith("the loss mask on record removes") and "outside [0.5, 2]" in own.short


def test_settings_without_a_correction_say_so(tmp_path: Path) -> None:
    off = {"algorithm": {"rollout_correction": {"rollout_is": None, "rollout_rs": None}}}
    own = found(written(tmp_path / "run", "verl 0.9.1", off, everything))
    assert own.state == "none set" and "weight outside [0.5, 2]" in own.short


def test_settings_that_a_trainer_would_reject_are_no_error(tmp_path: Path) -> None:
    wrong = {"algorithm": {"rollout_correction": {"rollout_is": "words"}}}
    own = found(written(tmp_path / "run", "verl 0.9.1", wrong, everything))
    assert own.state == "unreadable" and "rollout_is is 'words'" in own.words


def test_a_trainer_whose_record_is_older_than_its_mask_is_not_accused(tmp_path: Path) -> None:
    block = {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0}
    config = {"trainer": {"algorithm": {"off_policy_correction": block}}}
    own = found(written(tmp_path / "run", "skyrl 0.4.0", config, everything))
    assert own.state == "not visible" and "SkyRL masks in its workers" in own.words


@pytest.mark.parametrize(("reason", "state"), [("off_policy", "not on"), (None, "not visible")])
def test_a_mask_inside_the_loss_is_missing_only_where_the_losss_reasons_are_of_it(
    tmp_path: Path, reason: str | None, state: str
) -> None:
    own_mask = {"vllm_importance_sampling_mode": "token_truncate", "off_policy_mask_threshold": 1e-4}
    number = None if reason is None else MASK_REASONS.index(reason)
    own = found(written(tmp_path / "run", "trl 1.16.0", {"args": TRL["args"] | own_mask}, everything, number))
    assert own.state == state and own.masked is not None and own.masked > 0.01
    assert ("acts inside TRL's loss" in own.words) == (state == "not visible")


def test_the_settings_of_each_trainer_are_found_where_its_adapter_records_them() -> None:
    assert own_settings({"trainer": "miles", "config": {"args": {"use_tis": True}}}) is not None
    assert own_settings({"trainer": "NeMo-RL", "config": {"loss_fn": {"ratio_clip_min": 0.2}}}) is not None
    assert own_settings({"trainer": "areal 1.0.4", "config": {"areal": {"actor": {"eps_clip": 0.2}}}}) is not None
    assert own_settings({"trainer": "Fireworks cookbook", "config": {"tis": {"cap": 5.0}}}) is not None
    assert own_settings({"trainer": "mine", "config": {"args": {"use_tis": True}}}) is None
    assert own_settings({"trainer": "trl"}) is None


def test_the_verdict_line_has_k3_and_the_share_that_is_removed(capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(ROOT / "sample_data" / "runs" / "trl-vllm-stale")
    assert main(["diagnose", folder]) == 0
    first, line = capsys.readouterr().out.splitlines()[:2]
    assert first.startswith("trl-vllm-stale: act: ")
    assert "K3 0.153 nats/token at the 12 steps read; the run's own correction removes 0% and clips" in line
    assert main(["diagnose", folder, "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert plain["own_correction"]["state"] == "weights only"
    assert "of the tokens and set none to 0; " in plain["own_correction"]["words"]
    assert {each["code"] for each in plain["groups_and_masks"]} >= {"groups_without_variance", "tokens_without_version"}


def test_a_run_without_settings_is_told_how_its_own_trainer_records_them() -> None:
    assert 'trainer="trl", config={"args"' in no_settings({}) and no_settings({}) == no_settings({"trainer": "trl"})
    said = no_settings({"trainer": "verl"})
    assert 'trainer="verl"' in said and "trl" not in said and said.endswith("the whole configuration of verl")
