"""The adapter for OpenRLHF, on OpenRLHF's own actor trainer; see openrlhf_drive.py.

Needs an importable openrlhf 0.11.2, ray and transformers. Skipped otherwise; `pytest -m upstream` runs nothing else.
"""

import math
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import ratioscope
from ratioscope.collectors.adapters.openrlhf import rows as openrlhf_rows
from ratioscope.collectors.watching.hooks import MARK

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

FOLDER = Path(__file__).parent
driving = pytest.importorskip("upstream.openrlhf_drive", reason="the package is not importable here")
ACCUMULATED, EPOCHS, SAMPLES = driving.ACCUMULATED, driving.EPOCHS, driving.SAMPLES
actor_module, drive = driving.actor_module, driving.drive
first_actions, is_close = driving.first_actions, driving.is_close

MICRO_BATCHES = SAMPLES // 2 * EPOCHS
COLUMNS = ("minibatch", "rollout_logprobs", "old_logprobs", "current_logprobs", "advantages", "mask")


def rows_of(run_dir: Path) -> pl.DataFrame:
    """All rows of a run's token files."""
    files = sorted(run_dir.glob("tokens/*/*.parquet"))
    return pl.concat([pl.read_parquet(file) for file in files]).sort("step", "minibatch", "sequence_id")


def events_of(run_dir: Path) -> list[str]:
    found: list[str] = ratioscope.open_run(run_dir).events["event"].to_list()
    return found


def expected_rows(trace: dict[str, Any], step: int) -> list[tuple[Any, ...]]:
    """(minibatch, rollout, old, current, advantages, mask) of every visit of a sample in a step, cut to its actions."""
    rows: list[tuple[Any, ...]] = []
    for micro, batch in enumerate(trace["seen"][step * MICRO_BATCHES : (step + 1) * MICRO_BATCHES]):
        for row, mask in enumerate(batch["mask"]):
            cut = {name: first_actions(values[row], mask) for name, values in batch.items() if values is not None}
            rows.append(
                (micro // ACCUMULATED, *(cut.get(n) for n in ("rollout", "old", "current", "advantages", "mask")))
            )
    return sorted(rows, key=lambda row: (row[0], row[2]))


def test_three_policies_are_what_the_loss_was_given_token_by_token(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", strict=True)
    for step in range(2):
        recorded = sorted(
            rows_of(tmp_path / "run").filter(step=step + 1).select(COLUMNS).rows(), key=lambda r: (r[0], r[2])
        )
        expected = expected_rows(trace, step)
        assert len(recorded) == len(expected) == SAMPLES * EPOCHS
        for row, wanted in zip(recorded, expected, strict=True):
            assert row[0] == wanted[0]
            assert is_close(row[2], wanted[2]) and is_close(row[3], wanted[3]) and is_close(row[4], wanted[4])
            assert row[5] == wanted[5]
            given = [r for r in zip(row[1], wanted[1], strict=True) if not math.isnan(r[0])]
            assert np.allclose([r[0] for r in given], [r[1] for r in given], atol=1e-6)


def test_a_filler_on_a_sampled_token_is_set_aside_and_counted(tmp_path: Path) -> None:
    drive(tmp_path / "run", strict=True)
    flat = rows_of(tmp_path / "run").select(
        "minibatch", pl.col("rollout_logprobs").list.eval(pl.element().is_nan()).list.sum()
    )
    assert flat["rollout_logprobs"].sum() == 2 * EPOCHS  # one token of one sample of each of two steps
    assert ratioscope.open_run(tmp_path / "run").metrics()["mismatch/non_finite"].to_list() == [1, 1]


def test_a_sequence_has_one_id_over_epochs_and_its_own_facts(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", strict=True)
    rows = rows_of(tmp_path / "run")
    assert (rows.group_by("step", "sequence_id").agg(pl.col("minibatch").n_unique())["minibatch"] == EPOCHS).all()
    first = rows.filter(step=1).unique("sequence_id").sort("sequence_id")
    batch = trace["batch"][0]
    assert np.allclose(first["reward"], [item["reward"] for item in batch])
    assert first["prompt_text"].to_list() == [item["prompt"] for item in batch]
    assert first["finish_reason"].to_list() == ["length" if item["truncated"] else "stop" for item in batch]
    assert first.group_by("group_id").len()["len"].to_list() == [2] * 4
    for row, item in zip(first.iter_rows(named=True), batch, strict=True):
        assert row["token_ids"] == first_actions(item["sequences"][1:], item["action_mask"])
        assert is_close(row["reference_logprobs"], first_actions(item["base_action_log_probs"], item["action_mask"]))


def test_synchronous_training_is_fresh_and_asynchronous_training_says_that_it_cannot_tell(tmp_path: Path) -> None:
    drive(tmp_path / "sync", strict=True)
    rows = rows_of(tmp_path / "sync")
    assert (rows["rollout_version_min"] == rows["step"] - 1).all() and (
        rows["trainer_version"] == rows["step"] - 1
    ).all()
    drive(tmp_path / "async", asynchronous=True, strict=True)
    assert rows_of(tmp_path / "async")["rollout_version_min"].null_count() == 2 * SAMPLES * EPOCHS
    assert events_of(tmp_path / "async").count("no_rollout_versions") == 1
    drive(tmp_path / "told", asynchronous=True, rollout_version=lambda trainer: trainer.micro_train_batch_size - 2)
    assert set(rows_of(tmp_path / "told")["rollout_version_min"]) == {0}


def test_without_correction_drift_is_recorded_and_the_setting_is_named(tmp_path: Path) -> None:
    drive(tmp_path / "run", correction="off", strict=True)
    rows = rows_of(tmp_path / "run")
    assert rows["rollout_logprobs"].null_count() == len(rows) == 2 * SAMPLES * EPOCHS
    assert rows["old_logprobs"].null_count() == 0
    assert events_of(tmp_path / "run").count("no_rollout_logprobs") == 1


def test_entropy_is_there_where_the_loss_computes_it(tmp_path: Path) -> None:
    drive(tmp_path / "with", strict=True)
    drive(tmp_path / "without", entropy=False, strict=True)
    assert rows_of(tmp_path / "with")["entropy"].null_count() == 0
    assert rows_of(tmp_path / "without")["entropy"].null_count() == 2 * SAMPLES * EPOCHS


def test_dynamic_batches_are_counted_by_their_own_optimizer_steps(tmp_path: Path) -> None:
    drive(tmp_path / "run", dynamic=True, steps=1, strict=True)
    of_index = {row["sequence_id"]: row["minibatch"] for row in rows_of(tmp_path / "run").to_dicts()}
    assert {of_index[f"1-0-{index}"] for index in (0, 1, 2, 3)} == {2}  # the last epoch's
    assert {of_index[f"1-0-{index}"] for index in (4, 5, 6, 7)} == {3}


def test_steps_that_only_the_critic_trains_are_counted(tmp_path: Path) -> None:
    drive(tmp_path / "run", freezing=4, steps=1, strict=True)
    assert set(rows_of(tmp_path / "run")["step"]) == {6}


def test_a_rank_that_holds_a_copy_writes_nothing(tmp_path: Path) -> None:
    drive(tmp_path / "run", ring_attn_rank=1, strict=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("correction", ["token", "seq", "off"])
def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path, correction: str) -> None:
    assert repr(drive(tmp_path / "run", correction=correction)) == repr(drive(None, correction=correction))
    assert len(rows_of(tmp_path / "run")) == 2 * SAMPLES * EPOCHS


def test_detach_restores_every_name_also_where_it_was_imported() -> None:
    module = actor_module()
    buffer = import_module("openrlhf.trainer.ppo_utils.replay_buffer")
    names = [
        (module.ActorPPOTrainer, "ppo_train"), (module.ActorPPOTrainer, "training_step"), (module.PolicyLoss, "forward"),
        (module.Actor, "forward"), (buffer, "make_experience_batch"),
        (import_module("openrlhf.trainer.ppo_utils.experience"), "make_experience_batch"),
    ]  # fmt: skip
    before = [getattr(owner, name) for owner, name in names]
    attached = ratioscope.attach("openrlhf", "/nonexistent/run")
    assert all(hasattr(getattr(owner, name), MARK) for owner, name in names)
    attached.detach()
    assert [getattr(owner, name) for owner, name in names] == before


def test_a_version_without_what_is_needed_is_refused_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = actor_module().ActorPPOTrainer
    monkeypatch.setattr(trainer, "renamed", trainer.training_step, raising=False)
    monkeypatch.delattr(trainer, "training_step")
    attached = ratioscope.attach("openrlhf", tmp_path / "run")
    assert attached.refused is not None and "training_step" in attached.refused
    assert not (tmp_path / "run").exists()


def test_a_failing_look_is_counted_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any) -> None:
        raise RuntimeError("cannot look")

    monkeypatch.setattr(openrlhf_rows, "_sample", broken)
    assert repr(drive(tmp_path / "run")) == repr(drive(None))


def test_our_scalars_are_in_the_status_that_the_driver_logs(tmp_path: Path) -> None:
    trace = drive(tmp_path / "run", steps=4, scalars=True)
    assert any("ratioscope/mismatch/kl_k3" in status for status in trace["logs"])
    assert all("ppo_kl" in status for status in trace["logs"])


def test_a_variable_and_nothing_else_records_a_run(tmp_path: Path) -> None:
    code = """
import ratioscope.collectors.environment as environment
environment.install()
from upstream.openrlhf_drive import drive
drive(None)
"""
    path = os.pathsep.join([str(FOLDER.parent), str(FOLDER.parents[1]), *sys.path])
    environment = {**os.environ, "RATIOSCOPE_RUN": str(tmp_path / "run"), "PYTHONPATH": path}
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, env=environment, timeout=300)
    assert len(rows_of(tmp_path / "run")) == 2 * SAMPLES * EPOCHS
