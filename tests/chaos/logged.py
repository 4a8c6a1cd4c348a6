"""The batches that are logged under fire, made from a seed. Imports nothing that a trainer would not have."""

from __future__ import annotations

from typing import Any

import numpy as np

ROWS = 4
POLICY_COLUMNS = ("rollout_logprobs", "old_logprobs", "current_logprobs")


Batch = dict[str, Any]
"""Arguments of Collector.log, save the step."""


def logged(seed: int, step: int, rank: int = 0, *, rows: int = ROWS) -> Batch:
    """A step: ragged log-probs of three policies, 1 to 23 tokens each."""
    random = np.random.default_rng((seed, step, rank))
    lengths = random.integers(1, 24, rows)
    rollout = [-random.exponential(size=length).astype(np.float32) for length in lengths]
    near = {
        name: [values + random.normal(0, 0.1, len(values)).astype(np.float32) for values in rollout]
        for name in POLICY_COLUMNS[1:]
    }
    ids = [f"s{step}-r{rank}-{index}" for index in range(rows)]
    return {"sequence_ids": ids, "rollout_logprobs": rollout, **near}


def parts(batch: Batch, step: int) -> list[Batch]:
    """The batch as it is logged: two thirds of the steps come in two parts, each flushed by itself."""
    cut = step % 3
    cuts = (
        {name: values[:cut] for name, values in batch.items()},
        {name: values[cut:] for name, values in batch.items()},
    )
    return [part for part in cuts if part["sequence_ids"]]
