"""What the SkyRL adapter does with what it is given, without SkyRL; its own trainers are in upstream/test_skyrl_adapter.py."""

import gc
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ratioscope import Collector, open_run
from ratioscope.collectors.adapters.skyrl.recorder import SkyrlRecorder
from ratioscope.collectors.adapters.skyrl.rows import Rows, appended_ends, sequence_ids
from ratioscope.collectors.adapters.skyrl.sampling import Beside, Filters, Masks, Sampling, Syncs
from ratioscope.collectors.watching.hooks import Call
from ratioscope.ingest.analysis.support import support_of


class Batch(dict[str, Any]):
    """As much of a TrainingInputBatch as is read."""

    def __init__(self, columns: Mapping[str, Any], **metadata: Any) -> None:
        super().__init__(columns)
        self.metadata = metadata


class Noted:
    """A recording that keeps what it is told."""

    rollout_version = None

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.said: list[str] = []
        self.collector = SimpleNamespace(flush=lambda _: True)

    def describe(self, **_: Any) -> None:
        pass

    def log(self, **values: Any) -> None:
        self.logged.append(values)

    def event(self, kind: str, step: int, note: str = "") -> None:
        self.said.append(kind)

    def say_once(self, kind: str, step: int, note: str, level: int = 0) -> None:
        self.said.append(kind)


def right_aligned(rows: Sequence[Sequence[float]], width: int) -> torch.Tensor:
    return torch.tensor([[0.0] * (width - len(row)) + list(row) for row in rows])


@given(st.lists(st.lists(st.floats(-9, -1, width=32), max_size=5), min_size=1, max_size=6), st.integers(0, 3))
def test_rows_are_cut_from_the_right_and_padding_rows_left_out(rows: list[list[float]], padding: int) -> None:
    width = max(1, *map(len, rows))
    padded = [*rows, *rows[:1] * padding]
    mask = right_aligned([[1.0] * len(row) for row in padded], width)
    batch = Batch(
        {"response_mask": mask.long(), "rollout_logprobs": right_aligned(padded, width), "loss_mask": mask},
        pad_size=padding,
    )
    found = Rows(batch, None)
    columns = found.columns(0, len(padded))
    assert len(found) == len(rows) and [row.tolist() for row in columns["rollout_logprobs"]] == rows
    assert "old_logprobs" not in columns and found.lacks("old_logprobs")
    assert len(set(columns["sequence_ids"])) == len(rows)


def test_the_sentinel_becomes_nan_in_the_records_and_stays_in_the_batch() -> None:
    rollout = torch.tensor([[0.0, -1.0, -9999.0], [-2.0, -3.0, -9999.0]])
    batch = Batch(
        {"response_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]), "rollout_logprobs": rollout.clone()}, pad_size=1
    )
    found = Rows(batch, None)
    (row,) = found.columns(0, 2)["rollout_logprobs"]
    assert row[0] == -1.0 and bool(row[1].isnan()) and found.clamped == 1
    assert torch.equal(batch["rollout_logprobs"], rollout)


def packed(rows: Sequence[Any], kind: torch.dtype) -> SimpleNamespace:
    """As much of a PackedTensor as is read."""
    values = torch.cat([torch.tensor(row, dtype=kind).reshape(-1, 2) for row in rows])
    return SimpleNamespace(values=values, sequence_lengths=torch.tensor([len(row) for row in rows]))


def test_the_samplers_likeliest_tokens_of_score_centering_are_those_of_the_rows(tmp_path: Path) -> None:
    """The columns of SkyRL 0.5.0, by its source: a row for each response token, id -1 and log-prob -inf where there are fewer."""
    ids = [[[7, 8], [9, -1]], [[4, 5], [6, 7], [2, 3]]]
    logprobs = [[[-0.1, -2.0], [-0.5, float("-inf")]], [[-0.2, -1.0], [-0.3, -1.5], [-0.4, -2.5]]]
    rollout = right_aligned([[-1.0] * 2, [-2.0] * 3], 3)
    columns = {"response_mask": (rollout != 0).long(), "rollout_logprobs": rollout, "action_log_probs": rollout}
    assert Rows(Batch(columns), None).topk(0, 2) == {}
    support = {
        "rollout_sample_support": packed(ids, torch.int32),
        "rollout_sample_support_logprobs": packed(logprobs, torch.float32),
    }
    rows = Rows(Batch(columns | support), None)
    assert Rows(Batch(columns | {"rollout_sample_support": support["rollout_sample_support"]}), None).topk(0, 2) == {}
    with Collector(tmp_path / "run", writer="thread", strict=True) as collector:
        for place in (0, 1):
            collector.log(step=1, minibatch=place, **rows.columns(place, place + 1), **rows.topk(place, place + 1))
    found = support_of(open_run(tmp_path / "run"), 1)
    assert [sorted(row) for row in found.ids.tolist()] == [[7, 8], [-1, 9], [4, 5], [6, 7], [2, 3]]
    assert found.rollout[1].tolist()[0] == -0.5 and bool(np.isnan(found.train).all())


def test_a_prompts_sequences_have_ids_of_their_own_at_every_step() -> None:
    once, again = Sampling(1, 0, 0), Sampling(9, 8, 8)
    assert sequence_ids(["7", "7", "2"], [once] * 3) == ["1-7-0", "1-7-1", "1-2-0"]
    assert not set(sequence_ids(["7"], [once])) & set(sequence_ids(["7"], [again]))


def test_only_an_end_in_the_loss_with_logprob_zero_looks_appended() -> None:
    output = {
        "response_ids": [[5, 1], [5, 1], [5, 4], [5, 1], []],
        "rollout_logprobs": [[-1.0, 0.0], [-1.0, -0.5], [-1.0, 0.0], [-1.0, 0.0], []],
    }
    masks = [[1, 1], [1, 1], [1, 1], [1, 0], []]
    assert appended_ends(output, masks, 1) == [True, False, False, False, False]
    assert appended_ends({**output, "rollout_logprobs": None}, masks, 1) == [False] * 5


def test_the_engine_had_the_version_of_the_last_sync_before(monkeypatch: pytest.MonkeyPatch) -> None:
    syncs = Syncs()
    assert syncs.newest is None and syncs.before(1.0) is None
    for moment, version in ((10.0, 0), (20.0, 1)):
        monkeypatch.setattr("time.monotonic", lambda moment=moment: moment)
        syncs.add(version)
    assert [syncs.before(moment) for moment in (9.0, 10.0, 19.9, 20.0, 99.0)] == [None, 0, 0, 1, 1]
    assert syncs.newest == 1


def test_a_generator_apart_from_the_trainers_engine_has_no_version() -> None:
    engine, other = object(), object()

    def version(held: object, *, is_synced: bool = True) -> int | None:
        recorder = SkyrlRecorder(Noted())  # type: ignore[arg-type]
        recorder._trainer = SimpleNamespace(inference_engine_client=engine, generator=SimpleNamespace(engine=held))
        if is_synced:
            recorder._syncs.add(3)
        return recorder._engine_version()

    assert (version(engine), version(other), version(engine, is_synced=False)) == (3, None, None)


def test_a_note_goes_with_its_object() -> None:
    notes, thing, other = Beside(), Batch({}), Batch({})
    notes.put(thing, "noted")
    assert notes.note(thing) == "noted" and notes.note(other) is None
    del thing
    gc.collect()
    assert not notes._notes


def test_filtered_masks_find_what_they_were_and_nothing_is_kept_forever() -> None:
    filters, was = Filters(), [[1, 0, 1], [1, 1]]
    filtered = [[0, 0, 0], was[1][:]]
    filters.add(was, filtered)
    assert filters.unfiltered(filtered) == was
    assert filters.unfiltered(filtered) == filtered  # told once
    masks, rows, merged = Masks(), [[4, 4, 4], [5, 5]], [6]
    masks.add(1, rows, was)
    assert masks.knows(rows[0]) and not masks.knows(list(rows[0]))
    assert masks.take(2, [*rows, merged], [*filtered, [1]]) == [*was, [1]]
    masks.take(3, [], [])
    assert not masks._known


@pytest.fixture
def trainer() -> Any:
    settings = SimpleNamespace(max_tokens_per_microbatch=64, fully_async=SimpleNamespace(enabled=False))
    cfg = SimpleNamespace(trainer=settings)
    return SimpleNamespace(cfg=cfg, dispatch=object(), tokenizer=object(), global_step=4)


def batch_of_two() -> Batch:
    ones = torch.ones(2, 3)
    columns = {"response_mask": ones.long(), "rollout_logprobs": -ones, "action_log_probs": -ones}
    return Batch(columns, pad_size=0, policy_mini_batch_boundaries=[(0, 1), (1, 2)])


def test_current_out_of_order_is_left_out_and_said(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before 0.4.0, with packed micro-batches: its iterator has no way back to the order of the samples."""
    workers: Any = ModuleType("skyrl.backends.skyrl_train.workers.worker_utils")
    workers.TokenBasedBatchIterator = object
    monkeypatch.setitem(sys.modules, workers.__name__, workers)
    assert "current_logprobs" not in visits(trainer, [{"logprobs": [-1.0] * 3}])[0]
    workers.TokenBasedBatchIterator = SimpleNamespace(reorder_and_combine_items=None)
    assert visits(trainer, [{"logprobs": [-1.0] * 3}])[0]["current_logprobs"] == [[-1.0] * 3]


def test_outputs_without_logprobs_leave_the_rest_of_the_row(trainer: Any) -> None:
    logged, said = visits(trainer, [{}]), visits(trainer, [], said=True)
    assert [(row["step"], row["minibatch"], row["trainer_version"]) for row in logged] == [
        (4, 0, 3),
        (4, 1, 3),
        (4, 2, 3),
    ]
    assert all("current_logprobs" not in row and row["rollout_logprobs"] for row in logged)
    assert set(said) == {"no_current_logprobs", "no_rollout_versions"}


def test_another_models_training_is_no_row(trainer: Any) -> None:
    assert visits(trainer, [{"values": [0.0]}], model="critic") == []


def visits(trainer: Any, outputs: list[Any], *, model: str = "policy", said: bool = False) -> list[Any]:
    """What is logged of three mini-batches with these outputs each, or what is said."""
    noted: Any = Noted()
    recorder, data = SkyrlRecorder(noted), batch_of_two()
    recorder.training(Call(trainer, {"model": model, "data": data}))
    for _ in range(3):
        result = SimpleNamespace(loss_fn_outputs=outputs)
        recorder.visited(Call(trainer.dispatch, {"model": model}, result))
    recorder.trained(Call(trainer, {}))
    found: list[Any] = noted.said if said else noted.logged
    return found
