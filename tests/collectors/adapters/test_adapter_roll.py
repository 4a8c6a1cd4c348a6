"""The adapter for ROLL, on a stand-in of exact signatures; see standins/roll.py."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from standins.roll import SAMPLES, Setting, drive

import ratioscope
from ratioscope.collectors.watching.hooks import MARK
from ratioscope.ingest.analysis.comparability import run_facts
from ratioscope.ingest.analysis.known_context import setting_faults

EPOCHS = 2
SETTINGS = {
    "recomputed": Setting(),
    "cached": Setting(enable_old_logprobs_recompute=False),
    "agentic": Setting(agentic=True, enable_old_logprobs_recompute=False),
    "agentic recomputed": Setting(agentic=True),
    "no log-probs": Setting(logprobs=False),
}
FLOATS = ("old_logprobs", "current_logprobs", "entropy", "reference_logprobs", "advantages")


def rows_of(run_dir: Path) -> pl.DataFrame:
    """All rows of a run's token files."""
    rows = pl.concat([pl.read_parquet(file) for file in sorted(run_dir.glob("tokens/*/*.parquet"))])
    return rows.sort("step", "minibatch", "sequence_id")


def events_of(run_dir: Path) -> list[str]:
    found: list[str] = ratioscope.open_run(run_dir).events["event"].to_list()
    return found


def expected(trace: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A row per visit of a sequence, token by token from what the loss was given; written apart from the adapter."""
    for held in trace["held"]:
        for row, name in enumerate(held["ids"]):
            rollout = held["infer_logprobs"][row] if "infer_logprobs" in held else None
            responses = [bool(one) for one in held["response_mask"][row][1:]]
            if "origin_response_mask" in held:
                mask = [bool(one) for one in held["origin_response_mask"][row][1:]]
            else:
                mask = [one or (rollout is not None and rollout[t] != 0.0) for t, one in enumerate(responses)]
            places = [t for t, one in enumerate(mask) if one]
            tokens = range(places[0], places[-1] + 1)
            columns = {
                "old_logprobs": held["old"], "current_logprobs": held["current"], "advantages": held["advantages"],
                "reference_logprobs": held["ref_log_probs"], "entropy": held["entropy"],
            }  # fmt: skip
            yield {
                "step": held["step"],
                "minibatch": held["update"],
                "sequence_id": name,
                "mask": [mask[t] for t in tokens],
                "loss_mask": [bool(held["final"][row][t]) for t in tokens],
                "token_ids": [held["input_ids"][row][t + 1] for t in tokens],
                "rollout_logprobs": None if rollout is None else [rollout[t] for t in tokens],
                **{name: [values[row][t] for t in tokens] for name, values in columns.items()},
            }


def check(run_dir: Path, trace: dict[str, Any]) -> list[dict[str, Any]]:
    """That the rows hold what the loss was given, to the bit of a float32; the rows."""
    rows = {(row["step"], row["minibatch"], row["sequence_id"]): row for row in rows_of(run_dir).iter_rows(named=True)}
    wanted = list(expected(trace))
    assert len(rows) == len(wanted) == 2 * SAMPLES * EPOCHS
    for row in wanted:
        own = rows[row["step"], row["minibatch"], row["sequence_id"]]
        for name in ("mask", "loss_mask", "token_ids"):
            assert own[name] == row[name], name
        for name in FLOATS:
            assert np.array_equal(np.asarray(own[name], np.float32), np.asarray(row[name], np.float32)), name
        if row["rollout_logprobs"] is None:
            assert own["rollout_logprobs"] is None
        else:
            pairs = zip(own["rollout_logprobs"], row["rollout_logprobs"], row["old_logprobs"], strict=True)
            assert all(np.float32(a) == np.float32(b) or (np.isnan(a) and b == 0.0 and old < -1) for a, b, old in pairs)
    return list(rows.values())


@pytest.mark.parametrize("kind", SETTINGS)
def test_policies_and_both_masks_are_what_the_loss_was_given_token_by_token(tmp_path: Path, kind: str) -> None:
    trace = drive(tmp_path / "run", setting=SETTINGS[kind], strict=True)
    rows = check(tmp_path / "run", trace)
    assert any(row["mask"] != row["loss_mask"] for row in rows)


def test_a_filler_on_a_sampled_token_is_set_aside_and_counted(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    flat = rows_of(tmp_path / "run")["rollout_logprobs"].explode()
    assert flat.is_nan().sum() == 2 * EPOCHS
    assert ratioscope.open_run(tmp_path / "run").metrics()["mismatch/non_finite"].to_list() == [1, 1]


@pytest.mark.parametrize("kind", ["recomputed", "agentic"])
def test_groups_rewards_and_versions_are_those_of_the_sample(tmp_path: Path, kind: str) -> None:
    trace = drive(tmp_path / "run", setting=SETTINGS[kind], strict=True)
    for row in rows_of(tmp_path / "run").iter_rows(named=True):
        batch = trace["batch"][row["step"]]
        index = batch["sample_uuid"].index(row["sequence_id"])
        group, score = ("traj_group_id", "episode_scores") if kind == "agentic" else ("id", "scores")
        assert row["group_id"] == f"{row['step']}-{batch[group][index]}"
        assert row["reward"] == pytest.approx(batch[score][index], rel=1e-6)
        assert row["rollout_version_min"] == row["trainer_version"] == row["step"]


def test_turns_of_an_agent_are_told_from_the_mask(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=SETTINGS["agentic"], strict=True)
    for row in rows_of(tmp_path / "run").iter_rows(named=True):
        of_sampled = [turn for turn, mask in zip(row["turn"], row["mask"], strict=True) if mask]
        gaps = row["mask"].count(False) > 0
        assert of_sampled == sorted(of_sampled) and set(of_sampled) == ({0, 1} if gaps else {0})


def test_engines_that_are_updated_every_other_step_are_stale_in_between(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=Setting(model_update_frequency=2), first_step=2, strict=True)
    rows = rows_of(tmp_path / "run")
    assert set(rows.select(lag=pl.col("trainer_version") - pl.col("rollout_version_min"))["lag"]) == {0, 1}


def test_without_a_model_update_nobody_knows_which_weights_sampled(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=Setting(updates=False), strict=True)
    assert rows_of(tmp_path / "run")["rollout_version_min"].null_count() == 2 * SAMPLES * EPOCHS
    assert events_of(tmp_path / "run").count("no_rollout_versions") == 1


def test_asynchronous_generation_says_that_versions_are_unknown_unless_told(tmp_path: Path) -> None:
    setting = Setting(async_generation_ratio=1.5)
    drive(tmp_path / "run", setting=setting, strict=True)
    assert rows_of(tmp_path / "run")["rollout_version_min"].null_count() == 2 * SAMPLES * EPOCHS
    assert events_of(tmp_path / "run").count("no_rollout_versions") == 1
    drive(tmp_path / "told", setting=setting, rollout_version=lambda worker: worker.rank_info.rank, strict=True)
    assert set(rows_of(tmp_path / "told")["rollout_version_min"]) == {0}


def test_what_is_absent_is_named_with_the_setting_that_records_it(tmp_path: Path) -> None:
    drive(tmp_path / "rollout", setting=SETTINGS["no log-probs"], strict=True)
    assert events_of(tmp_path / "rollout").count("no_rollout_logprobs") == 1
    drive(tmp_path / "cached", setting=SETTINGS["cached"], strict=True)
    assert events_of(tmp_path / "cached").count("old_is_current") == 1
    nameless = Setting(enable_old_logprobs_recompute=False, names=False)
    drive(tmp_path / "old", setting=nameless, strict=True)
    assert events_of(tmp_path / "old").count("no_old_logprobs") == 1
    assert rows_of(tmp_path / "old")["old_logprobs"].null_count() == 2 * SAMPLES * EPOCHS


def test_without_a_reference_model_its_copy_of_old_is_not_recorded(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=Setting(enable_reference=False), strict=True)
    assert rows_of(tmp_path / "run")["reference_logprobs"].null_count() == 2 * SAMPLES * EPOCHS


def test_samples_copied_to_fill_a_batch_keep_ids_of_their_own_within_an_update(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=Setting(copies=True), strict=True)
    rows = rows_of(tmp_path / "run")
    assert len(rows.unique(["step", "minibatch", "sequence_id"])) == len(rows) == 2 * SAMPLES * EPOCHS


@pytest.mark.parametrize("setting", [Setting(tp_rank=1), Setting(cp_rank=1)])
def test_a_rank_that_holds_a_copy_writes_nothing(tmp_path: Path, setting: Setting) -> None:
    drive(tmp_path / "run", setting=setting, strict=True)
    assert not (tmp_path / "run").exists()


def test_weights_and_a_resume_are_noted(tmp_path: Path) -> None:
    drive(tmp_path / "run", setting=Setting(resume_from_checkpoint=True), first_step=3, steps=3, strict=True)
    assert events_of(tmp_path / "run").count("weight_sync") == 2
    assert events_of(tmp_path / "run").count("resume") == 1


@pytest.mark.parametrize("kind", SETTINGS)
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path, kind: str) -> None:
    setting = SETTINGS[kind]
    assert repr(drive(tmp_path / "run", setting=setting)) == repr(drive(None, setting=setting))
    assert len(rows_of(tmp_path / "run")) == 2 * SAMPLES * EPOCHS


@pytest.mark.usefixtures("patient")
def test_our_scalars_are_among_the_metrics_that_the_worker_returns(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", steps=4, scalars=True)
    assert any("ratioscope/mismatch/kl_k3" in metrics for metrics in trace["logs"])
    assert all("actor/pg_loss" in metrics for metrics in trace["logs"])


def test_detach_restores_every_name_also_where_it_was_imported(tmp_path: Path) -> None:
    def during() -> None:
        strategy = sys.modules["roll.distributed.strategy.megatron_strategy"]
        corrections = sys.modules["roll.utils.train_infer_corrections"]
        worker = sys.modules["roll.pipeline.base_worker"].ActorWorker
        names = [
            (strategy.MegatronTrainStrategy, "train_step"), (worker, "get_old_log_probs_with_cache"),
            (corrections, "compute_train_infer_correction"),
            (sys.modules["roll.pipeline.rlvr.actor_worker"], "compute_train_infer_correction"),
        ]  # fmt: skip
        before = [getattr(owner, name) for owner, name in names]
        attached = ratioscope.attach("roll", tmp_path / "run")
        assert all(hasattr(getattr(owner, name), MARK) for owner, name in names)
        attached.detach()
        assert [getattr(owner, name) for owner, name in names] == before

    drive(None, during=during)


def test_a_version_without_what_is_needed_is_refused_and_trains(tmp_path: Path) -> None:
    def during() -> None:
        worker = sys.modules["roll.pipeline.base_worker"].ActorWorker
        with pytest.MonkeyPatch.context() as patch:
            patch.delattr(worker, "get_old_log_probs_with_cache")
            attached = ratioscope.attach("roll", tmp_path / "run")
        assert attached.refused is not None and "get_old_log_probs_with_cache" in attached.refused

    drive(None, during=during)
    assert not (tmp_path / "run").exists()


def test_the_settings_of_the_engine_are_recorded_and_betray_a_temperature(tmp_path: Path) -> None:
    engine = SimpleNamespace(
        generating_args=SimpleNamespace(temperature=0.7, top_p=1.0, stop=["no setting of the gap"]),
        strategy_args=SimpleNamespace(strategy_name="sglang"),
        model_args=SimpleNamespace(model_name_or_path="Qwen/Qwen3-8B", dtype="bf16"),
    )
    drive(tmp_path / "run", steps=1, setting=Setting(actor_infer=engine))
    info = ratioscope.open_run(tmp_path / "run").info
    assert info["config"]["actor_infer"]["generating_args"] == {"temperature": 0.7, "top_p": 1.0}
    assert "roll_sglang_temperature" in {each.code for each in setting_faults(info)}
    facts = run_facts(info)
    assert (facts.model, facts.engine) == ("Qwen/Qwen3-8B", "bfloat16")
