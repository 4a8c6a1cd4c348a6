"""TRL's masks: tokens that a tool wrote, what the loss leaves out, and what its gradient says of it."""

from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_trl import TrainingTrace, train
from support.trl_rows import assert_equal
from support.written_run import token_rows

from ratioscope.collectors.adapters.trl.columns import RATIO, left, reasons
from ratioscope.collectors.adapters.trl.rows import turns
from ratioscope.record import MASK_REASONS

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

NARROW = {"vllm_stub": True, "vllm_importance_sampling_clip_max": 1.01, "vllm_importance_sampling_clip_min": 0.99}
FILTERS: dict[str, dict[str, Any]] = {
    "nothing": {},
    "a tool's tokens": {"env_mask": True},
    "sequences by their ratio": {**NARROW, "vllm_importance_sampling_mode": "sequence_mask"},
    "tokens by their ratio": {**NARROW, "vllm_importance_sampling_mode": "token_mask"},
    "truncated ratios": {**NARROW, "vllm_importance_sampling_mode": "token_truncate"},
    "old sequences": {"off_policy_mask_threshold": 1e-4, "num_iterations": 2, "steps": 4},
    "tokens of little entropy": {"top_entropy_quantile": 0.3},
    "all at once": {
        **NARROW, "vllm_importance_sampling_mode": "token_mask", "env_mask": True, "off_policy_mask_threshold": 1e-4,
        "top_entropy_quantile": 0.5, "mask_truncated_completions": True,
    },
}  # fmt: skip
GIVEN = {
    "sequences by their ratio": {"sequence"}, "tokens by their ratio": {"low", "high"}, "old sequences": {"off_policy"},
    "tokens of little entropy": {"other"}, "all at once": {"low", "high", "off_policy", "other", "length"},
}  # fmt: skip
"""Filter -> the reasons that it may give."""
LEAVES_OUT = set(FILTERS) - {"nothing", "a tool's tokens", "truncated ratios"}


@cache
def unrecorded(name: str) -> TrainingTrace:
    """The training without a collector, once for all tests of a filter."""
    return train(None, **FILTERS[name])


@pytest.mark.parametrize("name", FILTERS)
def test_the_loss_mask_is_where_the_loss_has_a_gradient(tmp_path: Path, name: str) -> None:
    trace = train(tmp_path / "run", **FILTERS[name])
    left_out, given = 0, set[str]()
    rows = {(row["step"], tuple(row["token_ids"])): row for row in token_rows(tmp_path / "run").to_pylist()}
    for batch, felt in zip(trace.batches, trace.sensitivities, strict=True):
        for index, ids in enumerate(batch["completion_ids"].tolist()):
            row = next(rows[key] for key in rows if key[0] == batch["global_step"] + 1 and _begins(ids, key[1]))
            length = len(row["token_ids"])
            mask, loss_mask, slope = np.array(row["mask"]), np.array(row["loss_mask"]), felt[index, :length].numpy()
            assert not (loss_mask & ~mask).any()
            assert (slope[~loss_mask] == 0).all()
            if _unclipped(batch, index) and batch["advantages"][index] != 0:
                assert (slope[loss_mask] != 0).all()
            left_out += int((mask & ~loss_mask).sum())
            reasons = np.array(row["mask_reason"] or [0] * length)
            assert ((reasons != 0) == (mask & ~loss_mask)).all()
            given |= {MASK_REASONS[number] for number in reasons} - {"kept"}
    assert (left_out > 0) == (name in LEAVES_OUT)
    assert given <= GIVEN.get(name, set()) and bool(given) == (name in LEAVES_OUT)
    assert_equal(unrecorded(name).losses, trace.losses, "losses")


def _begins(ids: list[int], wanted: tuple[int, ...]) -> bool:
    return tuple(ids[: len(wanted)]) == wanted and not any(ids[len(wanted) :])


def _unclipped(batch: dict[str, Any], index: int) -> bool:
    old = batch.get("old_per_token_logps", batch["current"])
    return bool((torch.exp(batch["current"] - old)[index] - 1).abs().max() < 0.2)


@pytest.mark.parametrize("name", ["sequences by their ratio", "tokens by their ratio"])
def test_a_batch_without_importance_weights_has_the_same_mask_and_reasons(name: str) -> None:
    settings = {**FILTERS[name], "use_vllm": True, "vllm_importance_sampling_correction": True, "loss_type": "dapo"}
    trainer, rejected = SimpleNamespace(**settings), 0
    for batch in unrecorded(name).batches:
        mask = batch["completion_mask"].bool()
        assert RATIO in batch
        without = {key: value for key, value in batch.items() if key != RATIO}
        assert torch.equal(left(mask, batch, (), trainer), left(mask, without, (), trainer))
        given, found = reasons(mask, batch, {}, trainer), reasons(mask, without, {}, trainer)
        assert torch.equal(torch.as_tensor(given), torch.as_tensor(found))
        rejected += int((mask & ~left(mask, without, (), trainer)).sum())
    assert rejected > 0


def test_turns_are_told_apart_by_the_tool_between_them(tmp_path: Path) -> None:
    train(tmp_path / "run", env_mask=True)
    train(tmp_path / "plain")
    assert token_rows(tmp_path / "plain")["turn"].null_count == len(token_rows(tmp_path / "plain"))
    for row in token_rows(tmp_path / "run").to_pylist():
        length = len(row["token_ids"])
        assert row["turn"] == ([0, 0, 0, 0] + [1] * 20)[:length]
        assert row["mask"] == [position not in (2, 3) for position in range(length)]
        assert row["finish_reason"] == ("stop" if row["token_ids"][-1] in (0, 1) else "length")


def test_turns_of_any_mask() -> None:
    mask = [[1, 1, 0, 1, 0, 0, 1], [0, 0, 1, 1, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]]
    found = turns(torch.tensor(mask, dtype=torch.bool)).tolist()
    assert found == [[0, 0, 0, 1, 1, 1, 2], [0, 0, 0, 0, 0, 1, 1], [0, 0, 0, 0, 0, 0, 0]]
    assert [turns(np.array(row, bool)).tolist() for row in mask] == found


def test_hidden_completions_keep_what_was_sampled_and_lose_what_is_trained(tmp_path: Path) -> None:
    train(tmp_path / "run", mask_truncated_completions=True, env_mask=True, steps=2)
    rows = token_rows(tmp_path / "run").to_pylist()
    hidden = [row for row in rows if row["finish_reason"] == "length"]
    assert hidden and len(hidden) < len(rows)
    for row in hidden:
        assert row["mask"] == [position not in (2, 3) for position in range(len(row["token_ids"]))]
        assert not any(row["loss_mask"]) and row["current_logprobs"] is None and row["rollout_logprobs"] is not None
        assert row["turn"] == ([0, 0, 0, 0] + [1] * 20)[: len(row["turn"])]


def sequences(run: Path, step: int) -> dict[str, dict[str, Any]]:
    return {row["sequence_id"]: row for row in token_rows(run).to_pylist() if row["step"] == step}


@pytest.mark.parametrize("vllm_stub", [False, True])
def test_old_stays_with_the_sampling_while_current_moves_on(tmp_path: Path, vllm_stub: bool) -> None:
    trace: TrainingTrace = train(tmp_path / "run", num_iterations=3, vllm_stub=vllm_stub, steps=3)
    first, second, third = (sequences(tmp_path / "run", step) for step in (1, 2, 3))
    assert first.keys() == second.keys() == third.keys() and len(first) == 8
    drift = []
    for later in (first, second, third):
        for name, row in later.items():
            assert (row["minibatch"], row["trainer_version"], row["generation_step"]) == (0, 0, 1)
            for same in ("rollout_logprobs", "old_logprobs", "advantages", "reward", "group_id"):
                assert row[same] == first[name][same], same
        apart = [np.subtract(row["current_logprobs"], row["old_logprobs"]) for row in later.values()]
        drift.append(float(np.abs(np.concatenate(apart)).mean()))
    assert drift[0] < 1e-5 < drift[1] < drift[2]
    assert len(trace.losses) == 6  # two micro-batches of each of three updates
