"""TRL's real RLOOTrainer: per token, what it has and then adds up, and what its vLLM tells and it ignores."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.tiny_trl import WORDS, TrainingTrace, make_trainer, train
from support.trl_rows import assert_equal
from support.written_run import commit_lines, token_rows

from ratioscope import attach
from ratioscope.collectors.adapters.trl.recorder import NO_ROLLOUT_IN_RLOO

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
]

SCENES: dict[str, dict[str, Any]] = {
    "transformers samples": {},
    "vLLM samples": {"vllm_stub": True},
    "two iterations": {"vllm_stub": True, "num_iterations": 2},
    "reference model": {"vllm_stub": True, "beta": 0.05},
    "evaluation in between": {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4},
}


@pytest.fixture(scope="module", params=SCENES, ids=str)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainingTrace, TrainingTrace, Path]:
    """A run without and one with a collector, and the folder the latter wrote."""
    run, settings = tmp_path_factory.mktemp("run") / "run", {"rloo": True, **SCENES[request.param]}
    return train(None, **settings), train(run, **settings), run


Scene = tuple[TrainingTrace, TrainingTrace, Path]


def test_training_is_the_same_to_the_last_bit(scene: Scene) -> None:
    without, with_collector, _ = scene
    for name in ("losses", "gradients", "parameters", "random_state", "log_history", "settings", "batches"):
        assert_equal(getattr(without, name), getattr(with_collector, name), name)


def test_every_row_holds_what_the_trainer_held(scene: Scene) -> None:
    _, trace, run = scene
    rows = token_rows(run).to_pylist()
    batches = [batch for batch in trace.batches if batch["training"]]
    held = [(batch, index) for batch in batches for index in range(len(batch["completion_ids"]))]
    assert len(rows) == len(held) > 0
    for row, (batch, index) in zip(rows, held, strict=True):
        length = int(batch["completion_mask"][index].sum())
        ids = batch["completion_ids"][index, :length].tolist()
        assert (row["step"], row["token_ids"]) == (batch["global_step"] + 1, ids)
        assert row["token_texts"] == [WORDS[token] for token in ids]
        assert row["current_logprobs"] == batch["current"][index, :length].tolist()
        assert row["entropy"] == batch["entropy"][index, :length].tolist()
        assert row["advantages"] == [batch["advantages"][index].item()]
        assert sum(row["old_logprobs"]) == pytest.approx(batch["old_logps"][index].item(), rel=1e-5)
        if batch["global_step"] + 1 == row["generation_step"]:
            np.testing.assert_allclose(row["old_logprobs"], row["current_logprobs"], atol=1e-5)
        if trace.sampled:
            np.testing.assert_allclose(row["rollout_logprobs"], trace.sampled[tuple(ids)], rtol=1e-6)
        assert (row["rollout_logprobs"] is None) == (not trace.sampled)
        assert (row["reference_logprobs"] is None) == (trace.settings["beta"] == 0)
        assert row["reward"] == pytest.approx(trace.rewards[tuple(ids)], rel=1e-6)
    assert trace.attachment is not None
    counts = trace.attachment.collector.counts
    assert (counts.sequences.written, counts.sequences.dropped, dict(counts.failures)) == (len(rows), 0, {})


def test_old_moves_away_from_current_when_a_sampling_is_used_again(tmp_path: Path) -> None:
    train(tmp_path / "run", rloo=True, vllm_stub=True, num_iterations=2, steps=2)
    first, again = ([r for r in token_rows(tmp_path / "run").to_pylist() if r["step"] == step] for step in (1, 2))
    by_id = {row["sequence_id"]: row for row in first}
    assert len(again) == len(first) == len(by_id)
    for row in again:
        before = by_id[row["sequence_id"]]
        for name in ("rollout_logprobs", "old_logprobs", "trainer_version", "rollout_version_min", "group_id"):
            assert row[name] == before[name]
        assert np.abs(np.subtract(row["current_logprobs"], row["old_logprobs"])).max() > 1e-3


def test_the_reference_is_that_of_the_first_weights(tmp_path: Path) -> None:
    train(tmp_path / "run", rloo=True, beta=0.05, steps=2)
    for row in token_rows(tmp_path / "run").to_pylist():
        apart = np.abs(np.subtract(row["reference_logprobs"], row["old_logprobs"])).max()
        assert apart < 1e-5 if row["step"] == 1 else apart > 1e-3


def test_where_rollout_would_come_from_is_said_once(tmp_path: Path) -> None:
    train(tmp_path / "run", rloo=True, steps=2)
    events = [line for line in commit_lines(tmp_path / "run", "event") if line["event"] != "first_rows"]
    assert [(line["event"], line["note"]) for line in events] == [("no_rollout_logprobs", NO_ROLLOUT_IN_RLOO)]


def test_detach_leaves_trainer_and_engine_as_they_were(tmp_path: Path) -> None:
    from support.tiny_trl import Engine

    trainer = make_trainer(str(tmp_path), rloo=True)
    trainer.use_vllm, trainer._last_loaded_step, trainer.vllm_generation = True, -1, Engine(trainer)
    before, engine = dict(vars(trainer)), dict(vars(trainer.vllm_generation))
    attachment = attach(trainer, tmp_path / "run")
    assert "generate" in vars(trainer.vllm_generation)
    assert attachment.detach()
    assert vars(trainer) == before and vars(trainer.vllm_generation) == engine
