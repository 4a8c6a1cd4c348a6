"""What rows of NeMo-RL must be: the tensors of its driver and of its loss, and training without a trace."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from support.written_run import token_rows

from ratioscope.metrics.dialects import nemo_rl
from ratioscope.metrics.dialects.batch import batch_arrays
from ratioscope.metrics.engines.join import joined

COLUMNS = {
    "rollout_logprobs": "generation_logprobs", "old_logprobs": "prev_logprobs", "reference_logprobs": "reference_policy_logprobs",
    "advantages": "advantages", "token_ids": "input_ids",
}  # fmt: skip


def records(run: Path) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rows of the driver, one per sequence and step; rows of the workers, one per sequence and optimizer step)."""
    rows = token_rows(run).to_pylist()
    return [row for row in rows if row["minibatch"] is None], [row for row in rows if row["minibatch"] is not None]


def assert_held(trace: dict[str, Any], run: Path, *, absent: tuple[str, ...] = ()) -> None:
    """Every column equals, bit by bit, what NeMo-RL's driver sent to `train` and what its loss was called with."""
    facts, current = records(run)
    sent = {key: place for step, batch in enumerate(trace["batches"], 1) for key, place in _places(step, batch).items()}
    assert len(facts) == len(sent) == sum(len(batch["input_ids"]) for batch in trace["batches"])
    ids = {}
    for row in facts:
        key = (row["step"], *row["prompt_ids"], *row["token_ids"])
        batch, index = sent.pop(key)
        ids[row["step"], row["sequence_id"]] = key
        for column, name in COLUMNS.items():
            assert row[column] == (None if column in absent else response(batch, index, name)), column
        assert row["mask"] == [bool(value) for value in response(batch, index, "token_mask")]
        assert row["loss_mask"] == [kept and bool(batch["sample_mask"][index]) for kept in row["mask"]]
    wanted = _current(trace["losses"])
    assert len(current) == len(wanted)
    for row in current:
        assert row["current_logprobs"] in wanted[ids[row["step"], row["sequence_id"]][1:]]


def _places(step: int, batch: dict[str, torch.Tensor]) -> dict[tuple[int, ...], tuple[dict[str, torch.Tensor], int]]:
    found = {}
    for row in range(len(batch["input_ids"])):
        sampled = np.flatnonzero(batch["token_mask"][row])
        found[step, *batch["input_ids"][row, : sampled[-1] + 1].tolist()] = (batch, row)
    assert len(found) == len(batch["input_ids"])
    return found


def _current(losses: list[dict[str, Any]]) -> dict[tuple[int, ...], list[list[float]]]:
    """Tokens of a sequence -> its current log-probs of each call of the loss."""
    found: dict[tuple[int, ...], list[list[float]]] = {}
    for call in losses:
        data = call["data"] | {"current": torch.nn.functional.pad(call["current"], (1, 0))}
        for row in range(len(data["input_ids"])):
            sampled = np.flatnonzero(data["token_mask"][row])
            found.setdefault(tuple(data["input_ids"][row, : sampled[-1] + 1].tolist()), []).append(
                response(data, row, "current")
            )
    return found


def response(batch: dict[str, torch.Tensor], row: int, name: str) -> list[Any]:
    """From the first sampled token to the last, cut by numpy from what the trainer held."""
    sampled = np.flatnonzero(batch["token_mask"][row])
    found: list[Any] = np.asarray(batch[name][row])[sampled[0] : sampled[-1] + 1].tolist()
    return found


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    """Batches, losses with their arguments and metrics, weights, dumps, logs but for times, and random states."""
    assert len(one["weights"]) > len(one["batches"])
    for name in ("weights", "batches", "losses"):
        _assert_equal(one[name], other[name])
    for mine, theirs in zip(one["dumps"], other["dumps"], strict=True):
        assert mine.read_bytes() == theirs.read_bytes()
    assert _timeless(one["logs"]) == _timeless(other["logs"]) and one["rng"] == other["rng"]


def _assert_equal(one: Any, other: Any) -> None:
    assert type(one) is type(other)
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other)
    elif isinstance(one, dict):
        assert one.keys() == other.keys()
        for name in one:
            _assert_equal(one[name], other[name])
    elif isinstance(one, list):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other, strict=True):
            _assert_equal(mine, theirs)
    else:
        assert repr(one) == repr(other)


def _timeless(logs: list[Any]) -> list[str]:
    kept = [(step, metrics) for step, prefix, metrics in logs if prefix == "train"]
    return [
        repr((step, {name: value for name, value in metrics.items() if "duration" not in name}))
        for step, metrics in kept
    ]


LOGGED = (
    "gen_kl_error", "policy_kl_error", "js_divergence_error", "sampling_importance_ratio", "token_mult_prob_error", "probs_ratio",
    "probs_ratio_clamped", "approx_entropy", "num_valid_samples", "loss", "kl_penalty",
)  # fmt: skip


def assert_logged(trace: dict[str, Any], run: Path, config: dict[str, Any]) -> None:
    """Our dialect computes from the records what NeMo-RL logs for the step."""
    table = joined(token_rows(run))
    logged = {
        step: metrics for step, prefix, metrics in trace["logs"] if prefix == "train" and "gen_kl_error" in metrics
    }
    assert len(logged) == len(trace["batches"])
    calls = iter(trace["losses"])
    for step, metrics in logged.items():
        rows = [row for row in table.to_pylist() if row["step"] == step and row["minibatch"] is not None]
        updates = sorted({row["minibatch"] for row in rows})
        found = []
        for update in updates:
            mine = [row for row in rows if row["minibatch"] == update]
            groups: list[list[int]] = []
            while sum(len(group) for group in groups) < len(mine):
                groups.append(_rows_of(next(calls), mine))
            found.append(nemo_rl.evaluate(_batch(mine, table.schema), config, micro_batches=groups).metrics)
        for name in (*LOGGED, *({"is_oob_ratio"} & metrics.keys() if "train/is_oob_ratio" in found[0] else ())):
            values = [metrics_of[f"train/{name}"] for metrics_of in found]
            assert metrics[name] == pytest.approx(sum(values) / len(values), rel=2e-5, abs=1e-7), (
                name
            )  # exp(x) - 1 - x in float32


def _rows_of(call: dict[str, Any], rows: list[dict[str, Any]]) -> list[int]:
    """Which rows a call of the loss had."""
    keys = [(*row["prompt_ids"], *row["token_ids"]) for row in rows]
    return [keys.index(key) for key in _current([call])]


def _batch(rows: list[dict[str, Any]], schema: pa.Schema) -> dict[str, Any]:
    """The records as a dialect's arrays, and which samples a filter masked: those of whose tokens none is trained on."""
    arrays = batch_arrays(pa.Table.from_pylist(rows, schema))
    sample_mask = np.array([any(row["loss_mask"]) for row in rows], np.float32)
    own = {
        name: getattr(arrays, name)
        for name in ("mask", "rollout_logprobs", "old_logprobs", "current_logprobs", "advantages")
    }
    return {
        **own,
        **{name: value for name, value in arrays.extra.items() if name == "reference_logprobs"},
        "sample_mask": sample_mask,
    }
