"""The arrays of one step, made from its number."""

from typing import Any

import numpy as np

ROWS, TOKENS = 40, 200


def step_arrays(step: int, rows: int = ROWS, outlier: int | None = None) -> dict[str, Any]:
    random = np.random.default_rng(step)
    rollout = random.normal(-1.5, 0.5, (rows, TOKENS)).astype(np.float32)
    old = rollout + random.normal(0, 0.02, rollout.shape).astype(np.float32)
    if outlier is not None:
        old[outlier, TOKENS // 2] -= 5
    return {"rollout_logprobs": rollout, "old_logprobs": old, "sequence_ids": [f"{step}/{row}" for row in range(rows)]}
