"""A small batch for the dialects whose trainers differ in what else they read: ragged rows, random log-probs."""

from typing import Any

import numpy as np


def small_batch(rows: int = 4, positions: int = 6, *, spread: float = 0.1, seed: int = 0) -> dict[str, Any]:
    """Row i has i + 1 unmasked tokens; old and current lie `spread` around rollout; one advantage per token; float32."""
    noise = np.random.default_rng(seed).normal(0, 1, (4, rows, positions)).astype(np.float32)
    rollout = -np.abs(noise[0]) - 0.1
    return {
        "rollout_logprobs": rollout,
        "old_logprobs": rollout + spread * noise[1],
        "current_logprobs": rollout + spread * noise[2],
        "mask": np.arange(positions) < np.arange(rows)[:, None] + 1,
        "advantages": noise[3],
    }


def one_advantage(*, spread: float = 0.1) -> dict[str, Any]:
    """The same with one advantage a sequence."""
    given = small_batch(spread=spread)
    return given | {"advantages": given["advantages"][:, 0]}
