"""What of the AReaL adapter needs no AReaL: which rank writes, which rows a loss is about, where their tokens stand."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from ratioscope.collectors.adapters.areal.batch import KeptRollouts, Seen, Update
from ratioscope.collectors.adapters.areal.recorder import (
    ArealRecorder,
    data_parallel_rank,
    from_batch,
    from_loss,
    is_writer,
    pipeline_stages,
)
from ratioscope.collectors.adapters.trl.rows import turns
from ratioscope.collectors.batch.host_copy import HostCopies
from ratioscope.collectors.watching.hooks import Call

LENGTHS = (5, 7, 4, 7)
WIDTH = 7


def engine_of(ranks: Sequence[int], rank: int, **also: Any) -> Any:
    """An engine whose model-parallel group is `ranks`, and torch.distributed as that rank has it."""
    distributed = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        get_process_group_ranks=lambda group: list(group),
        get_rank=lambda: rank,
    )
    engine = SimpleNamespace(context_and_model_parallel_group=tuple(ranks), data_parallel_rank=3, **also)
    return SimpleNamespace(torch=SimpleNamespace(distributed=distributed), engine=engine)


def writers(monkeypatch: pytest.MonkeyPatch, ranks: Sequence[int], **also: Any) -> list[int]:
    found = []
    for rank in ranks:
        place = engine_of(ranks, rank, **also)
        monkeypatch.setitem(sys.modules, "torch", place.torch)
        if is_writer(place.engine):
            found.append(rank)
    monkeypatch.undo()
    return found


def test_one_rank_of_a_tensor_and_context_parallel_group_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert writers(monkeypatch, range(8, 16)) == [8]


@pytest.mark.parametrize(
    "stages",
    (
        {"parallel_strategy": SimpleNamespace(pipeline_parallel_size=2)},
        {"parallel_dims": SimpleNamespace(pp=2)},
    ),
    ids=("Megatron", "Archon"),
)
def test_one_rank_of_each_pipeline_stage_may_write_as_only_one_stage_has_a_loss(
    monkeypatch: pytest.MonkeyPatch, stages: dict[str, Any]
) -> None:
    assert writers(monkeypatch, (0, 1, 4, 5), **stages) == [0, 4]


def test_an_engine_without_a_group_is_asked_for_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    place = engine_of((0,), 0)
    monkeypatch.setitem(sys.modules, "torch", place.torch)
    assert is_writer(SimpleNamespace(is_data_parallel_head=lambda: True))
    assert not is_writer(SimpleNamespace(is_data_parallel_head=lambda: False))
    monkeypatch.undo()


def test_a_process_alone_writes_and_an_engine_may_say_nothing() -> None:
    assert is_writer(object())
    assert data_parallel_rank(object()) == 0 and pipeline_stages(object()) == 1
    assert data_parallel_rank(SimpleNamespace(data_parallel_rank=2)) == 2


def padded_batch() -> dict[str, Any]:
    """Four rows of prompts of 2 tokens; the second has a tool's answer, the third nothing that was sampled."""
    attention = torch.arange(WIDTH) < torch.tensor(LENGTHS)[:, None]
    sampled = attention & (torch.arange(WIDTH) >= 2)
    sampled[1, 4] = False
    sampled[2] = False
    values = torch.arange(4 * WIDTH, dtype=torch.float32).reshape(4, WIDTH)
    return {
        "attention_mask": attention,
        "loss_mask": torch.roll(sampled.float(), -1, -1),
        "input_ids": (100 + values).int() * attention,
        "logprobs": -values,
        "rewards": torch.tensor([0.0, 1.0, 2.0, 3.0]),
    }


def update_of(batch: dict[str, Any], **also: Any) -> Update:
    given = {"rollout": batch["logprobs"], "old": None, "groups": None, "is_rollout_lost": False, **also}
    return Update(data=batch, before=Seen(step=5), data_parallel_rank=0, copies=HostCopies(1 << 20), **given)


def piece(batch: dict[str, Any], rows: list[int]) -> tuple[list[int], dict[str, Any]]:
    return rows, {name: value[rows] for name, value in batch.items()}


def test_tokens_are_where_the_mask_says_and_their_log_probs_one_before() -> None:
    update = update_of(padded_batch())
    assert update.spans.firsts[[0, 1, 3]].tolist() == [1, 1, 1]
    assert update.spans.counts.tolist() == [3, 5, 0, 5]
    ids = from_batch(update, update.data["input_ids"], [0, 3], shift=1)
    assert ids is not None and [row.tolist() for row in ids] == [[102, 103, 104], [123, 124, 125, 126, 127]]
    logprobs = from_batch(update, update.rollout, [0])
    assert logprobs is not None and [row.tolist() for row in logprobs] == [[-1.0, -2.0, -3.0]]


def test_a_row_without_a_prompt_does_not_take_in_the_token_that_is_not_there() -> None:
    """AReaL rolls the mask: the first token's place wraps to the row's end, where nothing is predicted."""
    batch = padded_batch()
    batch["loss_mask"][3] = 1.0
    update = update_of(batch)
    assert (update.spans.firsts[3], update.spans.counts[3]) == (0, WIDTH - 1)


def test_columns_of_the_loss_are_cut_out_of_the_packed_rows() -> None:
    update = update_of(padded_batch())
    rows = [2, 1, 0]
    packed = torch.arange(float(sum(LENGTHS[row] for row in rows)))
    cut = from_loss(update, packed, rows, None)
    assert [row.tolist() for row in cut] == [[5.0, 6.0, 7.0, 8.0, 9.0], [12.0, 13.0, 14.0]]  # row 2 has none
    padded = from_loss(update, torch.arange(3.0 * WIDTH).reshape(3, WIDTH), rows, WIDTH)
    assert [row.tolist() for row in padded] == [[8.0, 9.0, 10.0, 11.0, 12.0], [15.0, 16.0, 17.0]]


def test_turns_count_the_runs_of_sampled_tokens() -> None:
    masks = [np.array([True, True, False, True]), np.array([True])]
    assert [turns(mask).tolist() for mask in masks] == [[0, 0, 0, 1], [0]]
    update = update_of(padded_batch())
    assert update.has_turns
    batch = padded_batch()
    batch["loss_mask"][1] = batch["loss_mask"][3]
    assert not update_of(batch).has_turns


def test_a_loss_is_about_the_next_piece_that_has_something_to_train_on() -> None:
    batch = padded_batch()
    update = update_of(batch)
    minibatches = [piece(batch, [3, 2]), piece(batch, [1, 0])]
    update.divide(batch, minibatches)
    first, second = minibatches[0][1], minibatches[1][1]
    update.divide(second, [piece(second, [1]), piece(second, [0])])
    assert update.visited(torch.zeros(LENGTHS[0]), LENGTHS[0]) == (1, [0])
    assert update.visited(torch.zeros(LENGTHS[1]), LENGTHS[1]) == (1, [1])
    update.divide(first, [piece(first, [1]), piece(first, [0])])  # row 2 has nothing: the engine skips it
    assert update.visited(torch.zeros(LENGTHS[3]), LENGTHS[3]) == (0, [3])
    with pytest.raises(LookupError, match="no row of its minibatch is left"):
        update.visited(torch.zeros(1), 1)


def test_pieces_out_of_order_are_left_out_rather_than_mixed_up() -> None:
    batch = padded_batch()
    update = update_of(batch)
    minibatches = [piece(batch, [0, 1, 3])]
    update.divide(batch, minibatches)
    update.divide(minibatches[0][1], [piece(minibatches[0][1], [0]), piece(minibatches[0][1], [1, 2])])
    with pytest.raises(LookupError, match="14 tokens, 5 were expected"):
        update.visited(torch.zeros(14), 14)
    with pytest.raises(LookupError, match="no row of its minibatch is left"):
        update.visited(torch.zeros(LENGTHS[0]), LENGTHS[0])


def test_an_engine_that_divides_no_further_is_known_by_the_minibatch_itself() -> None:
    batch = padded_batch()
    update = update_of(batch)
    minibatches = [piece(batch, [3, 1]), piece(batch, [2, 0])]
    update.divide(batch, minibatches)
    assert update.visited(minibatches[1][1]["loss_mask"], 2 * WIDTH) == (1, [2, 0])
    assert update.visited(minibatches[0][1]["loss_mask"], 2 * WIDTH) == (0, [3, 1])


def test_somebody_elses_batches_are_nothing_to_us() -> None:
    batch, others = padded_batch(), padded_batch()
    update = update_of(batch)
    update.divide(others, [piece(others, [0, 1, 2, 3])])
    assert update.parts == []


def test_kept_rollouts_are_found_by_their_tokens_wherever_the_rows_went() -> None:
    kept = KeptRollouts(HostCopies(1 << 20))
    batch = padded_batch()
    kept.keep(batch, step=5)
    order = [3, 0, 1]
    moved = {name: value[order] for name, value in batch.items()}
    found = kept.of(update_of(moved, is_rollout_lost=True))
    for row, values in zip(order, found, strict=True):
        assert values is not None and values.tolist() == batch["logprobs"][row].tolist()


def test_equal_sequences_get_their_rollouts_in_order_and_unknown_ones_none() -> None:
    kept = KeptRollouts(HostCopies(1 << 20))
    batch = padded_batch()
    batch["input_ids"][3], batch["attention_mask"][3] = batch["input_ids"][1], batch["attention_mask"][1]
    kept.keep(batch, step=5)
    other = {name: value.clone() for name, value in batch.items()}
    other["input_ids"][0] += 1
    found = kept.of(update_of(other, is_rollout_lost=True))
    assert found[0] is None
    assert found[1] is not None and found[1].tolist() == batch["logprobs"][1].tolist()
    assert found[3] is not None and found[3].tolist() == batch["logprobs"][3].tolist()


def test_what_was_kept_for_another_step_is_given_up() -> None:
    kept = KeptRollouts(HostCopies(1 << 20))
    kept.keep(padded_batch(), step=4)
    other = padded_batch()
    other["input_ids"] += 1000 * other["attention_mask"]
    kept.keep(other, step=5)
    assert kept.of(update_of(padded_batch(), is_rollout_lost=True)) == [None] * 4


def test_a_second_call_in_a_step_counts_on() -> None:
    batch = padded_batch()
    update = update_of(batch, groups=[0, 0, 1, 1])
    update.divide(batch, [piece(batch, [0, 1]), piece(batch, [2, 3])])
    assert update.seen_with_it == Seen(step=5, sequences=4, groups=2, minibatches=2)


@pytest.mark.parametrize(
    ("method", "event", "words"),
    [
        ("loglinear", "old_is_interpolated", "interpolates between rollout and current"),
        ("reuse_train_logp", "old_is_current", "there is no mismatch on record"),
    ],
)
def test_a_batch_without_old_log_probs_says_what_stands_in_their_place(
    monkeypatch: pytest.MonkeyPatch, method: str, event: str, words: str
) -> None:
    said: list[tuple[str, str]] = []
    recording: Any = SimpleNamespace(say_once=lambda kind, step, note, level=0: said.append((kind, note)))
    recorder = ArealRecorder(recording)
    for name, answer in (("is_writer", True), ("data_parallel_rank", 0)):
        monkeypatch.setattr(sys.modules[ArealRecorder.__module__], name, lambda engine, answer=answer: answer)
    monkeypatch.setattr(recorder, "_begin_step", lambda actor, data, step: None)
    config = SimpleNamespace(recompute_logprob=False, use_decoupled_loss=True, prox_logp_method=method)
    actor = SimpleNamespace(config=config, engine=SimpleNamespace(get_version=lambda: 3))
    data = {name: torch.ones(1, 2) for name in ("logprobs", "loss_mask", "attention_mask")}
    call = Call(actor, {"data": data})
    recorder.update_begins(call)
    assert [kind for kind, _ in said] == [event] and words in said[0][1]
