"""What rows of slime, or of its fork miles, must be: the tensors of the trainer's own functions, and training without a trace."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.written_run import token_rows

from ratioscope import open_run
from ratioscope.metrics.engines.join import joined


def rows(run: Path) -> list[dict[str, Any]]:
    return [row for row in joined(token_rows(run)).to_pylist() if row["minibatch"] is not None]


def assert_recorded(driving: Any, run: Path, settings: dict[str, Any]) -> None:
    """Drives the trainer with and without a recorder: 16 rows equal what it held, and training is the same to the last bit."""
    recorded = driving.drive(run, options={"strict": True}, **settings)
    assert recorded["refused"] is None and recorded["finished"]
    found = rows(run)
    assert len(found) == 16
    for row in found:
        _assert_held(recorded, row, with_entropy=settings.get("observe_training_entropy", True))
    assert_same(recorded, driving.drive(None, **settings))


def assert_same(one_run: dict[str, Any], other_run: dict[str, Any]) -> None:
    """What training computed, and the random states."""
    assert repr(one_run["logs"]) == repr(other_run["logs"])
    for name in ("gradients", "history"):
        assert all(torch.equal(one, other) for one, other in zip(one_run[name], other_run[name], strict=True))
    assert torch.equal(one_run["table"], other_run["table"]) and torch.equal(one_run["rng"][2], other_run["rng"][2])
    np.testing.assert_array_equal(one_run["rng"][1][1], other_run["rng"][1][1])
    assert one_run["rng"][0] == other_run["rng"][0] and one_run["samples"] == other_run["samples"]
    for one, other in zip(one_run["batches"], other_run["batches"], strict=True):
        assert list(one) == list(other)


def places(data: dict[str, Any]) -> list[int]:
    """The place in the rollout of each sequence of a shard: slime sends it along, and miles has one shard here, in order."""
    return list(data.get("partition", range(len(data["tokens"]))))


def names(data: dict[str, Any]) -> list[str]:
    """The id of each sequence of a shard."""
    return [f"{index}-{place}" for index, place in zip(data["sample_indices"], places(data), strict=True)]


def _assert_held(trace: dict[str, Any], row: dict[str, Any], *, with_entropy: bool) -> None:
    data = trace["batches"][row["step"]]
    one = names(data).index(row["sequence_id"])
    columns = {
        "rollout_logprobs": "rollout_log_probs", "old_logprobs": "log_probs", "reference_logprobs": "ref_log_probs",
        "advantages": "advantages",
    }  # fmt: skip
    for column, name in columns.items():
        if name in data:
            assert row[column] == data[name][one].tolist()
    tokens, length = data["tokens"][one], data["response_lengths"][one]
    steps = len(trace["history"]) // len(trace["batches"])
    table = torch.log_softmax(trace["history"][row["step"] * steps + row["minibatch"]], -1)
    before = table[tokens[len(tokens) - length - 1 : -1]]
    current = before.gather(1, tokens[len(tokens) - length :, None])[:, 0]
    assert row["current_logprobs"] == pytest.approx(current.tolist(), abs=1e-6)
    entropy = pytest.approx((-(before.exp() * before).sum(-1)).tolist(), abs=1e-6) if with_entropy else None
    assert row["entropy"] == entropy
    _, mask, versions = trace["samples"][row["step"]][places(data)[one]]
    known = "partition" in data or bool(
        data["loss_masks"][one].any()
    )  # miles' trainer has no mask of a sequence that is taken out
    assert row["mask"] == [bool(sampled and known) for sampled in mask]
    assert row["rollout_version_min"] == row["rollout_version_max"] == int(versions[0]) == row["trainer_version"]


def assert_logged_difference(driving: Any, run: Path, settings: dict[str, Any]) -> None:
    """The records give the absolute difference of old and rollout that the trainer logs for each optimizer step."""
    trace = driving.drive(run, options={"strict": True}, **settings)
    logged = [row["train/train_rollout_logprob_abs_diff"] for row in trace["logs"] if "train/step" in row]
    steps = len(logged) // 2
    sums = np.zeros(len(logged))
    for row in rows(run):
        kept, data = np.array(row["loss_mask"]), trace["batches"][row["step"]]
        whole = float(data["loss_masks"][names(data).index(row["sequence_id"])].sum())
        difference = np.abs(np.array(row["old_logprobs"]) - np.array(row["rollout_logprobs"]))
        sums[row["step"] * steps + row["minibatch"]] += (difference * kept).sum() / max(whole, 1.0)
    assert logged == pytest.approx((sums / (8 // steps)).tolist(), rel=1e-5)


def assert_equal_mismatch(recorded: Path, imported: Path) -> None:
    """Both runs have the same metrics of old over rollout at each step, to the last digits of a sum in another order."""
    ours, theirs = (open_run(run).metrics(gap="mismatch") for run in (recorded, imported))
    names = [name for name in ours.columns if name.startswith("mismatch/")]
    assert ours["step"].to_list() == theirs["step"].to_list() and len(names) > 20
    for name in names:
        one, other = (frame[name].cast(float).fill_null(float("nan")).to_list() for frame in (ours, theirs))
        assert one == pytest.approx(other, rel=1e-9, abs=1e-12, nan_ok=True), name
    assert all(value for value in theirs["mismatch/abs_log_ratio"])
