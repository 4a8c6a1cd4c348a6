"""TRL's real GRPOTrainer with a collector: training is the same to the last bit, and what the trainer held is on disk."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_trl import TrainingTrace, train
from support.trl_rows import assert_equal, assert_row, held_rows
from support.written_run import token_rows

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
    "the path for vLLM without its correction": {
        "vllm_stub": True,
        "vllm_importance_sampling_correction": False,
        "steps_per_generation": 4,
    },
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
