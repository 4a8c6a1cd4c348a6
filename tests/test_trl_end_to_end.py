"""TRL's real GRPOTrainer with a collector: training is the same to the last bit, and what the trainer held is on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_trl
import torch
from tiny_trl import TrainingTrace, train
from written_run import token_rows

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
    pytest.mark.filterwarnings("ignore:You are using 'rollout_func':UserWarning"),
]

SCENES: dict[str, dict[str, Any]] = {
    "one update per sampling": {},
    "two iterations": {"num_iterations": 2},
    "several updates per sampling": {"steps_per_generation": 4},
    "several samplings per update": {"steps_per_generation": 1},
    "the same rows twice in an update": {
        "num_iterations": 2,
        "gradient_accumulation_steps": 4,
        "steps_per_generation": 2,
    },
    "the path for vLLM": {"vllm_stub": True, "vllm_importance_sampling_mode": "token_truncate"},
    "environment tokens": {"env_mask": True, "vllm_stub": True},
    "reference model": {"beta": 0.04},
    "truncated completions hidden": {"mask_truncated_completions": True},
    "no rollout log-probs": {"rollout": False},
    "evaluation in between": {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
}


@pytest.fixture(scope="module", params=SCENES, ids=str)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[TrainingTrace, TrainingTrace, Path]]:
    """A run without and one with a collector, and the folder the latter wrote."""
    run = tmp_path_factory.mktemp("run") / "run"
    yield train(None, **SCENES[request.param]), train(run, **SCENES[request.param]), run


Scene = tuple[TrainingTrace, TrainingTrace, Path]


def test_training_is_the_same_to_the_last_bit(scene: Scene) -> None:
    without, with_collector, _ = scene
    for name in ("losses", "gradients", "parameters", "random_state", "log_history", "settings"):
        assert_equal(getattr(without, name), getattr(with_collector, name), name)


def test_the_loss_reads_the_same_batch(scene: Scene) -> None:
    without, with_collector, _ = scene
    assert_equal(without.batches, with_collector.batches, "batches")


def test_every_row_holds_what_the_trainer_held(scene: Scene) -> None:
    _, trace, run = scene
    rows = token_rows(run).to_pylist()
    batches = [batch for batch in trace.batches if batch["training"]]
    assert len(rows) == sum(len(batch["completion_ids"]) for batch in batches)
    for row, (batch, index) in zip(rows, held_rows(batches), strict=True):
        assert_row(row, batch, index, trace)
    assert trace.attachment is not None
    counts = trace.attachment.collector.counts
    assert (counts.sequences.written, counts.sequences.dropped, dict(counts.failures)) == (len(rows), 0, {})


def test_the_rows_give_what_trl_logs_of_the_mismatch(tmp_path: Path) -> None:
    trace = train(tmp_path / "run", vllm_stub=True, env_mask=True)
    rows = token_rows(tmp_path / "run").to_pylist()
    logged = [entry for entry in trace.log_history if "sampling/sampling_logp_difference/mean" in entry]
    assert [entry["step"] for entry in logged] == [1, 2, 3]
    for entry in logged:
        of_step = [row for row in rows if row["step"] == entry["step"]]
        old, rollout = (np.concatenate([row[f"{policy}_logprobs"] for row in of_step]) for policy in ("old", "rollout"))
        apart = np.abs(old - rollout)[np.concatenate([row["mask"] for row in of_step])]
        assert entry["sampling/sampling_logp_difference/mean"] == pytest.approx(apart.mean(), rel=1e-5)
        assert entry["sampling/sampling_logp_difference/max"] == pytest.approx(apart.max(), rel=1e-5)
        assert entry["reward"] == pytest.approx(np.mean([row["reward"] for row in of_step]), rel=1e-5)


def assert_equal(one: Any, other: Any, name: str) -> None:
    """Bit by bit, through lists and dicts; NaN equals itself."""
    if isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype and one.shape == other.shape, name
        assert one.numpy().tobytes() == other.numpy().tobytes(), name
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key in one:
            assert_equal(one[key], other[key], f"{name}[{key}]")
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other), name
        for index, (a, b) in enumerate(zip(one, other, strict=True)):
            assert_equal(a, b, f"{name}[{index}]")
    else:
        np.testing.assert_equal(one, other, name)


def held_rows(batches: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], int]]:
    """In the order of the disk: visible rows of a micro-batch, then those hidden from the loss."""
    for batch in batches:
        visible = batch["completion_mask"].any(1).tolist()
        order = [i for i, seen in enumerate(visible) if seen] + [i for i, seen in enumerate(visible) if not seen]
        yield from ((batch, index) for index in order)


def assert_row(row: dict[str, Any], batch: dict[str, Any], index: int, trace: TrainingTrace) -> None:
    is_hidden = not batch["completion_mask"][index].any()
    ids = batch["completion_ids"][index].tolist()
    # a completion that is hidden was cut off by its length, so it does not end in padding
    length = len(np.trim_zeros(ids, "b")) if is_hidden else int(batch["completion_mask"][index].sum())
    assert row["step"] == batch["global_step"] + 1
    assert row["token_ids"] == ids[:length]
    assert row["token_texts"] == [tiny_trl.WORDS[token] for token in ids[:length]]
    assert row["finish_reason"] == ("stop" if ids[length - 1] in (0, 1) else "length")  # TRL lets padding end one too
    assert row["advantages"] == [batch["advantages"][index].item()]
    assert row["reward"] == pytest.approx(trace.rewards[tuple(ids[:length])], rel=1e-6)
    assert row["prompt_text"].replace(" ", "") == "".join(
        tiny_trl.WORDS[token] for token in batch["prompt_ids"][index].tolist() if token
    )
    wanted = {
        "rollout_logprobs": batch.get("sampling_per_token_logps"),
        "old_logprobs": None if is_hidden else batch.get("old_per_token_logps", batch["current"]),
        "current_logprobs": None if is_hidden else batch["current"],
        "reference_logprobs": None if is_hidden else batch.get("ref_per_token_logps"),
        "entropy": None if is_hidden else batch["entropy"],
    }
    for name, values in wanted.items():
        assert row[name] == (None if values is None else values[index, :length].tolist()), name
    sampled = batch["completion_mask"] * batch.get("tool_mask", 1)
    assert row["loss_mask"] == [bool(value) for value in sampled[index, :length].tolist()]
    assert row["mask"] == ([True] * length if is_hidden else row["loss_mask"])
