"""The ROLL adapter on ROLL's own code: its batches, rewards, advantages, corrections, actor workers and FSDP2's step, on a CPU.

Needs a checkout of alibaba/ROLL (it is not published), tested with 8eb27cc2 of 2026-08-19, in a folder of SOURCES. Skipped
otherwise. ROLL's dump of rollouts has texts and scores, no log-probs and no token ids, so there is nothing of it to import.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.written_run import token_rows

import ratioscope
from ratioscope.metrics.engines.join import joined

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="ROLL runs on torch")
driving = pytest.importorskip("upstream.roll_drive", reason="ROLL is not importable here")

RATIO = {"enabled": True, "ratio_low": 0.95, "ratio_high": 1.05}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"enable_old_logprobs_recompute": False},
    {"enable_old_logprobs_recompute": True},
    {"enable_old_logprobs_recompute": False, "ppo_epochs": 2},
    {"enable_old_logprobs_recompute": True, "ppo_epochs": 2},
    {"enable_old_logprobs_recompute": False, "train_infer_correction": {"is_weight": {"enabled": True}}},
    {"enable_old_logprobs_recompute": False, "train_infer_correction": {"filters": [RATIO]}},
    {"enable_old_logprobs_recompute": True, "train_infer_correction": {"filters": [RATIO]}},
    {
        "enable_old_logprobs_recompute": True,
        "train_infer_correction": {"filters": [{**RATIO, "agg_type": "sequence"}], "is_weight": {"enabled": True}},
    },
    {"enable_old_logprobs_recompute": False, "importance_sampling": "seq", "entropy_loss_coef": 0.01},
    {"enable_old_logprobs_recompute": True, "enable_reference": False, "use_kl_loss": False},
    {"enable_old_logprobs_recompute": False, "error_max_len_clip": True, "error_max_len_threshold": 4},
    {"enable_old_logprobs_recompute": False, "logprobs": False},
    {"enable_old_logprobs_recompute": True, "worker": "actor_pg_worker.ActorPGWorker"},
)


@pytest.fixture(scope="module")
def roll() -> Iterator[Any]:
    """ROLL's modules. They are imported once, because that takes seconds."""
    with driving.importable() as module:
        yield module


def held(trace: dict[str, Any], settings: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per sequence and call of the loss."""
    rows = []
    for call in trace["calls"]:
        batch = call["batch"]
        for row, uuid in enumerate(call["uuids"]):
            sampled = [i for i, m in enumerate(batch["origin_response_mask"][row, 1:].tolist()) if m]
            cut = slice(sampled[0], sampled[-1] + 1)
            mask = batch["final_response_mask"][row, cut].bool()
            mask = mask if call["kept"] is None else mask & (call["kept"][row, cut] != 0)

            def of(values: Any, row: int = row, cut: slice = cut) -> Any:
                return None if values is None else values[row, cut].tolist()

            rows.append({
                "sequence_id": uuid, "step": call["step"], "minibatch": call["minibatch"], "mask": [True] * len(sampled),
                "group_id": f"{call['step']}-{call['ids'][row]}", "reward": batch["scores"][row].item(),
                "trainer_version": call["step"], "rollout_version_max": call["step"], "loss_mask": mask.tolist(),
                "token_ids": batch["input_ids"][row, 1:][cut].tolist(), "rollout_logprobs": of(batch.get("infer_logprobs")),
                "old_logprobs": of(call["old"]), "current_logprobs": of(call["current"]), "entropy": of(call["entropy"]),
                "reference_logprobs": of(batch["ref_log_probs"]) if settings.get("enable_reference", True) else None,
                "advantages": of(batch["advantages"]),
                "prompt_ids": batch["input_ids"][row, : cut.start + 1].tolist(),
            })  # fmt: skip
    return sorted(rows, key=order)


def order(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["step"], row["minibatch"], row["sequence_id"]


def recorded(run: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = joined(token_rows(run)).to_pylist()
    return sorted(rows, key=order)


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_roll_holds_is_recorded_and_its_training_is_bit_identical(
    roll: Any, tmp_path: Path, settings: Any
) -> None:
    trace = driving.drive(roll, tmp_path / "run", options={"strict": True}, **settings)
    assert trace["refused"] is None and trace["finished"]
    rows, wanted = recorded(tmp_path / "run"), held(trace, settings)
    assert len(rows) == len(wanted) == 24 * settings.get("ppo_epochs", 1)
    for row, own in zip(rows, wanted, strict=True):
        prompt = own.pop("prompt_ids")  # recorded at the first of a step's visits
        assert row["prompt_ids"] in ((prompt,) if row["minibatch"] < 2 else (prompt, None))
        assert {name: row[name] for name in own} == own
    if settings.get("logprobs", True):
        assert_logged(rows, trace, settings)
    other = driving.drive(roll, None, **settings)
    assert repr(trace["logs"]) == repr(other["logs"]) and torch.equal(trace["table"], other["table"])
    assert all(torch.equal(mine, yours) for mine, yours in zip(trace["gradients"], other["gradients"], strict=True))
    assert trace["rng"][:2] == other["rng"][:2] and torch.equal(trace["rng"][2], other["rng"][2])


def assert_logged(rows: list[dict[str, Any]], trace: dict[str, Any], settings: dict[str, Any]) -> None:
    """The records give ROLL's ratio of trainer and engine: over sequences, the mean of each one's mean over its tokens."""
    for step, own in enumerate(trace["logs"]):
        ratios = [
            np.exp(np.array(row["old_logprobs"]) - np.array(row["rollout_logprobs"])).mean()
            for row in rows
            if row["step"] == step
        ]
        assert own["actor/train_infer_ratio_token_mean@sum"] == pytest.approx(float(np.mean(ratios)), rel=1e-5)


def test_a_run_of_roll_opens_with_its_lag(roll: Any, tmp_path: Path) -> None:
    driving.drive(roll, tmp_path / "run", options={"strict": True}, enable_old_logprobs_recompute=True)
    run = ratioscope.open_run(tmp_path / "run")
    assert run.metrics(by=["step", "lag"]).select("step", "lag").rows() == [(0, "0"), (1, "0"), (2, "0")]
    assert run.info["trainer"].startswith("roll") and run.info["config"]["pg_clip"] == 0.2
