"""TRL's real AsyncGRPOTrainer with a collector: training is the same to the last bit, and what was sampled is on disk."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.tiny_trl import TrainingTrace
from support.tiny_trl_async import GENERATIONS, make_async_trainer, train_async, without_a_gpu
from support.trl_rows import assert_async_row, assert_equal
from support.written_run import commit_lines, token_rows

from ratioscope import attach, open_run
from ratioscope.collectors.adapters.trl.asynchronous import NO_OLD, AsyncRecorder
from ratioscope.errors import ConfigError

pytestmark = [
    pytest.mark.filterwarnings("ignore:`(is_)?gradient_checkpointing`:FutureWarning:transformers"),
]

SCENES: dict[str, dict[str, Any]] = {
    "as many samples as a step takes": {},
    "samples far ahead": {"ahead": 24},
    "token budget": {"token_budget": 60},
    "weights synced every second step": {"weight_sync_steps": 2},
    "one sample at a time": {"ahead": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 1},
}


@pytest.fixture(scope="module", params=SCENES, ids=str)
def scene(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[TrainingTrace, TrainingTrace, Path]:
    """A run without and one with a collector, and the folder the latter wrote."""
    run = tmp_path_factory.mktemp("run") / "run"
    return train_async(None, **SCENES[request.param]), train_async(run, **SCENES[request.param]), run


Scene = tuple[TrainingTrace, TrainingTrace, Path]


def test_training_is_the_same_to_the_last_bit(scene: Scene) -> None:
    without, with_collector, _ = scene
    for name in ("losses", "gradients", "parameters", "random_state", "log_history", "settings", "batches"):
        assert_equal(getattr(without, name), getattr(with_collector, name), name)


def test_every_row_holds_what_was_sampled_and_what_the_trainer_held(scene: Scene) -> None:
    _, trace, run = scene
    rows = token_rows(run).to_pylist()
    held = [(batch, segment) for batch in trace.batches for segment in range(int(batch["segment_id"].max()) + 1)]
    assert len(rows) == len(held) > 0
    for row, (batch, segment) in zip(rows, held, strict=True):
        assert_async_row(row, batch, segment)
    assert trace.attachment is not None
    counts = trace.attachment.collector.counts
    assert (counts.sequences.written, counts.sequences.dropped, dict(counts.failures)) == (len(rows), 0, {})


def test_rows_give_what_trl_logs_of_its_ratio(tmp_path: Path) -> None:
    trace = train_async(tmp_path / "run", gradient_accumulation_steps=1)  # TRL averages over micro-batches
    metrics = open_run(tmp_path / "run").metrics()
    logged = [entry for entry in trace.log_history if "ratio" in entry]
    assert [entry["step"] for entry in logged] == metrics["step"].to_list() == [1, 2, 3, 4]
    for entry, row in zip(logged, metrics.rows(named=True), strict=True):
        assert row["total/mean_weight_token"] == pytest.approx(entry["ratio"], rel=1e-5)
        assert row["total/kl_k3"] == pytest.approx(entry["kl"], rel=1e-3, abs=1e-6)  # TRL subtracts in float32
        assert row["total/tokens"] == entry["batch/trained_tokens_per_step"]


@pytest.mark.parametrize("every", [1, 2])
def test_lag_is_counted_in_updates_from_the_sync_of_the_weights_that_sampled(tmp_path: Path, every: int) -> None:
    with without_a_gpu():
        trainer = make_async_trainer(str(tmp_path), ahead=8, max_steps=5, weight_sync_steps=every)
        attachment = attach(trainer, tmp_path / "run")
        trainer.train()
        assert attachment.detach()
    rows = token_rows(tmp_path / "run").to_pylist()
    given = trainer.rollout_worker.given
    assert [row["group_id"] for row in rows] == [str(sample.group_id) for sample in given[: len(rows)]]
    assert [row["reward"] for row in rows] == [sample.metrics["reward"] for sample in given[: len(rows)]]
    for row, sample in zip(rows, given, strict=False):
        updates = (sample.model_version - 1) * every  # version 1 is the sync before the first step
        assert row["rollout_version_min"] == row["rollout_version_max"] == updates <= row["trainer_version"]
    assert {row["trainer_version"] - row["rollout_version_min"] for row in rows} == set(range(every + 1))
    syncs = [line for line in commit_lines(tmp_path / "run", "event") if line["event"] == "weight_sync"]
    assert [line["step"] for line in syncs] == list(range(1, 6, every))


def test_groups_prompts_and_finish_reasons_are_those_of_the_samples(tmp_path: Path) -> None:
    train_async(tmp_path / "run")
    rows = token_rows(tmp_path / "run").to_pylist()
    assert len({row["sequence_id"] for row in rows}) == len(rows)
    prompts: dict[str, set[str]] = {}
    for row in rows:
        prompts.setdefault(row["group_id"], set()).add(row["prompt_text"])
        assert row["finish_reason"] == ("stop" if row["token_ids"][-1] == 1 else "length")
    assert all(len(of_group) == 1 for of_group in prompts.values())
    assert len(rows) // GENERATIONS <= len(prompts) <= len(rows) // GENERATIONS + 1


def test_why_there_is_no_mismatch_is_said_once(tmp_path: Path) -> None:
    train_async(tmp_path / "run")
    events = [(line["event"], line["note"]) for line in commit_lines(tmp_path / "run", "event")]
    assert [note for event, note in events if event == "no_old_logprobs"] == [NO_OLD]
    (first,) = (note for event, note in events if event == "first_rows")
    assert "rollout and current look aligned" in first and "model_version of each sample" in first


def test_detach_leaves_the_trainer_as_it_was(tmp_path: Path) -> None:
    with without_a_gpu():
        trainer = make_async_trainer(str(tmp_path), max_steps=1)
        before, callbacks = dict(vars(trainer)), list(trainer.callback_handler.callbacks)
        attachment = attach(trainer, tmp_path / "run")
        assert all(name in vars(trainer) for name in AsyncRecorder.WRAPPED)
        with pytest.raises(ConfigError, match="already attached to this trainer"):
            attach(trainer, tmp_path / "again")
        loader = trainer.get_train_dataloader()
        assert trainer._rollout_dataset.queue is not trainer.rollout_queue
        assert attachment.detach() and attachment.detach()
        assert trainer._rollout_dataset.queue is trainer.rollout_queue
        assert "torch_call" not in vars(loader.collate_fn)
        assert all(name not in vars(trainer) for name in AsyncRecorder.WRAPPED)
        assert trainer.callback_handler.callbacks == callbacks and vars(trainer).keys() == before.keys()
        trainer.train()
        assert not trainer.model._forward_hooks
    assert len(token_rows(tmp_path / "run")) == 0


def test_what_fails_in_our_looks_stays_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> Any:
        raise RuntimeError("not today")

    monkeypatch.setattr("ratioscope.collectors.adapters.trl.asynchronous.sample_tensors", broken)
    trace, plain = train_async(tmp_path / "run"), train_async(None)
    assert_equal(plain.losses, trace.losses, "losses")
    assert trace.attachment is not None and trace.attachment.collector.counts.failures["trl adapter"] > 0
    assert sum("not today" in record.message for record in caplog.records) == 1


def test_a_trainer_without_what_is_needed_is_refused_and_trains_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(AsyncRecorder, "WRAPPED", (*AsyncRecorder.WRAPPED, "compute_something_else"))
    with caplog.at_level(logging.ERROR):
        trace = train_async(tmp_path / "run", steps=1)
    assert trace.attachment is not None and "has no compute_something_else" in (trace.attachment.refused or "")
    assert len(trace.losses) == 2 and not (tmp_path / "run").exists()


def test_the_samples_metrics_reach_trl_as_they_were() -> None:
    from ratioscope.collectors.adapters.trl.asynchronous import _Metrics

    made = _Metrics({"reward": 1.0})
    made.sample = object()
    assert made == {"reward": 1.0} and {**made} == {"reward": 1.0} and list(made) == ["reward"]


def test_what_was_packed_is_unpacked_and_values_stand_where_their_tokens_do() -> None:
    from types import SimpleNamespace

    from ratioscope.collectors.adapters.trl.asynchronous import FACTS, TOKENS, rank_samples, sample_of, sample_tensors

    def sample(mask: list[int], **named: Any) -> Any:
        told = {"group_id": 7, "model_version": 3, "advantage": -0.5, "metrics": {}, "prompt": "p", **named}
        return SimpleNamespace(input_ids=np.arange(10, 10 + len(mask)), completion_mask=np.array(mask), **told)

    one = sample_of(sample([1, 0, 1, 1, 0, 0, 1, 0], metrics={"reward": 2.0}), 1, 4, ends=(16,))
    two = sample_of(sample([0, 0, 0, 1]), 2, None, ends=(16,))
    none = sample_of(sample([0, 0]), 3, 4, ends=(16,))
    batch = sample_tensors([[two], [one, none, two]])
    with pytest.raises(ValueError, match="loss has 3 tokens, the packed row has 4"):
        rank_samples(batch[FACTS][1:], batch[TOKENS][1:], 3)
    row = rank_samples(batch[FACTS][1:], batch[TOKENS][1:], 4)
    assert (row.numbers, row.sequence_ids, row.groups) == ([1, 3, 2], ["7-1", "7-3", "7-2"], ["7", "7", "7"])
    assert (row.lengths, row.rollout_versions, row.model_versions) == ([5, 0, 1], [4, 4, None], [3, 3, 3])
    assert row.rewards == [2.0, None, None] and row.finish_reasons == ["stop", "length", "length"]
    assert row.token_ids.tolist() == [12, 13, 14, 15, 16, 13]
    assert row.trained.tolist() == [True, True, False, False, True, True]
    assert row.turns.tolist() == [0, 0, 0, 0, 1, 0]
    assert row.spread(torch.tensor([-1.0, -2.0, -3.0, -4.0])).tolist() == [-1.0, -2.0, 0.0, 0.0, -3.0, -4.0]
