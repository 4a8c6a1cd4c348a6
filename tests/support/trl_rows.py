"""Rows that a run of TRL recorded, beside the batches that its trainer held."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from support import tiny_trl
from support.tiny_trl import WORDS, TrainingTrace


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


def assert_async_row(row: dict[str, Any], batch: dict[str, Any], segment: int) -> None:
    selected = batch["token_index"][0] >= 0
    own = batch["segment_id"][0][selected] == segment
    index = batch["token_index"][0][selected][own]
    mask = np.array(row["mask"])
    assert row["step"] == batch["global_step"] + 1 == row["trainer_version"] + 1
    assert mask[0] and mask[-1] and row["loss_mask"] == row["mask"] and row["old_logprobs"] is None
    of_batch = {
        "rollout_logprobs": batch["old_log_probs"][0][selected][own],
        "current_logprobs": batch["current"].flatten()[index],
        "entropy": batch["entropy"].flatten()[index],
        "token_ids": batch["shift_labels"][0][index],
    }
    for name, values in of_batch.items():
        assert np.array(row[name])[mask].tolist() == values.tolist(), name
    assert row["advantages"] == batch["advantages"][0][selected][own][:1].tolist()
    assert row["token_texts"] == [WORDS[token] for token in row["token_ids"]]
    places = batch["position_ids"][0][index].numpy()  # with the tokens of a tool in between
    np.testing.assert_array_equal(np.flatnonzero(mask), places - places[0])
    turns = np.cumsum(np.diff(places, prepend=places[0] - 2) > 1) - 1
    assert np.array(row["turn"])[mask].tolist() == turns.tolist()
