"""The Fireworks adapter on the cookbook's own recipes: packing, batches, losses, coordinator and metrics, on a CPU.

Needs a checkout of fw-ai/cookbook (it is not published), tested with 76821fa1 of 2026-08-19, in a folder of SOURCES, and the SDK
of its lock file. Skipped otherwise.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import ratioscope
from ratioscope.metrics.dialects import fireworks
from ratioscope.record import arrow_schema

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore")]

torch = pytest.importorskip("torch", reason="the cookbook runs on torch")
driving = pytest.importorskip("upstream.fireworks_drive", reason="the cookbook is not importable here")

LOSSES = ("gspo", "dapo", "cispo", "dro", "is", "reinforce", "igpo")
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {"agents": True},
    {"agents": True, "kl_beta": 0.0},
    {"agents": True, "anchor_logp": "rollout"},
    {"agents": True, "tis": {"cap": 1.05}},
    {"agents": True, "tis": {"level": "sequence", "cap": 1.05}},
    {"agents": True, "tis": {"icepop_threshold": 1.1}},
    {"agents": True, "eps_clip": 0.01, "eps_clip_high": 0.02},
    {"recipe": "async_rl_loop"},
    {"recipe": "async_rl_loop", "pipeline_chunks_per_step": 2},
    {"recipe": "async_rl_loop", "pipeline_chunks_per_step": 2, "max_head_offpolicy_versions": 1},
    *({"agents": True, "loss": loss} for loss in LOSSES),
)
COLUMNS = {
    "rollout_logprobs": "inf_logprobs", "old_logprobs": "old_policy_logprobs", "reference_logprobs": "ref_logprobs",
    "current_logprobs": "current",
}  # fmt: skip


@pytest.fixture(scope="module")
def cookbook() -> Iterator[Any]:
    """The cookbook's modules. They are imported once, because that takes seconds."""
    with driving.importable() as module:
        yield module


def float32(values: Any) -> list[float]:
    return [float(value) for value in np.asarray(values, np.float32)]


def held(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """One row per datum that a loss read, in the trainer's order, by the names of the Record."""
    rows = []
    for call in trace["held"]:
        lens = call["prompt_lens_list" if "prompt_lens_list" in call else "prompt_lens"]
        for index, datum in enumerate(call["data"]):
            start = lens[index] - 1
            row: dict[str, Any] = {"mask": [weight > 0.5 for weight in datum.loss_fn_inputs["weights"].data[start:]]}
            row["token_ids"] = list(datum.loss_fn_inputs["target_tokens"].data[start:])
            for column, name in COLUMNS.items():
                row[column] = float32(call[name][index][start:]) if call[name] else None
            if call["old_policy_logprobs"] is call["inf_logprobs"]:
                row["old_logprobs"] = None
            own = call["advantages"] if "advantages" in call else call["per_token_advantages"]
            row["advantages"] = float32(own[index][start:] if isinstance(own[index], list) else [own[index]])
            row["raw"] = call["raw_inf_logprobs"][index][start:] if "raw_inf_logprobs" in call else None
            rows.append(row)
    return rows


def recorded(run: Path) -> list[dict[str, Any]]:
    """Rows of a run in the order of training."""
    found: list[dict[str, Any]] = ratioscope.open_run(run).records().collect().to_dicts()
    return sorted(found, key=place)


def place(row: dict[str, Any]) -> list[int]:
    """Its step, its group in the step and its place in the group, which are the parts of its id."""
    return [int(part) for part in row["sequence_id"].split("-")]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_what_the_cookbook_holds_is_recorded_and_its_training_is_bit_identical(
    cookbook: Any, tmp_path: Path, settings: Any
) -> None:
    trace = driving.drive(cookbook, tmp_path / "run", options={"strict": True}, **settings)
    assert trace["refused"] is None and trace["finished"]
    rows, wanted = recorded(tmp_path / "run"), held(trace)
    assert len(rows) == len(wanted) == (24 if settings == {} else 32)
    for row, own in zip(rows, wanted, strict=True):
        raw = own.pop("raw")
        assert {name: row[name] for name in own} == own
        assert json.loads(row["extra"]).get("raw_rollout_logprobs") == raw
        assert row["loss_mask"] == row["mask"]
    assert_logged(trace, tmp_path / "run")
    assert_same(trace, driving.drive(cookbook, None, **settings))


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert repr(one["logs"]) == repr(other["logs"])
    assert [call["loss"] for call in one["held"]] == [call["loss"] for call in other["held"]]
    assert all(torch.equal(mine, yours) for mine, yours in zip(one["gradients"], other["gradients"], strict=True))
    assert torch.equal(one["table"], other["table"])
    assert one["rng"][:2] == other["rng"][:2] and torch.equal(one["rng"][2], other["rng"][2])


def assert_logged(trace: dict[str, Any], run: Path) -> None:
    """The records give each metric that the cookbook logged at each step; a call of the loss is a micro-batch of the dialect."""
    logs = {row["train/step"]: row for row in trace["logs"] if "train/target_tokens" in row}
    calls = len(trace["held"]) // 4
    assert sorted(logs) == [1, 2, 3, 4]
    opened = ratioscope.open_run(run)
    table = opened.records().collect()
    for step, own in logs.items():
        rows = sorted(table.filter(pl.col("step") == step).to_dicts(), key=place)
        sizes = [len(call["data"]) for call in trace["held"][(step - 1) * calls : step * calls]]
        chunks = np.split(np.arange(len(rows)), np.cumsum(sizes)[:-1])
        records = pa.Table.from_pylist(rows, schema=arrow_schema())
        found = fireworks.evaluate(
            records, opened.info["config"], micro_batches=[chunk.tolist() for chunk in chunks]
        ).metrics
        wanted = {name: own[name] for name in found if name in own}
        assert set(found) - set(wanted) <= {"train/loss_sum"} and len(wanted) >= 4
        assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("recipe", ["rl_loop", "async_rl_loop"])
def test_a_run_of_the_cookbook_opens_with_its_groups_rewards_and_lag(
    cookbook: Any, tmp_path: Path, recipe: str
) -> None:
    lag = {"max_head_offpolicy_versions": 1} if recipe == "async_rl_loop" else {}
    driving.drive(cookbook, tmp_path / "run", options={"strict": True}, recipe=recipe, agents=True, **lag)
    run = ratioscope.open_run(tmp_path / "run")
    found = run.metrics(by=["step", "lag"]).select("step", "lag").rows()
    assert found == [(1, "0"), *((step, "1" if lag else "0") for step in (2, 3, 4))]
    rows = recorded(tmp_path / "run")
    assert [row["reward"] for row in rows[:4]] == [0.0, 1.0, 1.0, 2.0]
    assert [json.loads(row["extra"])["run_id"] for row in rows[:4]] == ["run-0", "run-1", "run-1", "run-2"]
    assert len({row["group_id"] for row in rows}) == 8
