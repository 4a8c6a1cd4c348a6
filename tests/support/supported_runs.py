"""Runs with several tokens per position on record, whose sampler is flatter than the trainer."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.collectors.collector import Collector
from support.drawn_supports import log_softmax

SEQUENCES, TOKENS = 8, 12


def supported_run(
    folder: Path, *, steps: int = 24, k: int = 6, advantage: float = -0.5, trainer: str = "", **more: Any
) -> Path:
    """advantage: the mean over the sequences. Below 0 the updates widen the gap. more: given to `log`."""
    random = np.random.default_rng(5)
    with Collector(folder, writer="thread", strict=True, trainer=trainer or None) as collector:
        for step in range(steps):
            collector.log(step=step, **(logged(random, k, advantage) | more))
    return folder


def logged(random: np.random.Generator, k: int, advantage: float) -> dict[str, Any]:
    """The arguments of one step: 30 tokens of vocabulary, the k likeliest of the sampler recorded."""
    logits = random.normal(0, 2, (SEQUENCES * TOKENS, 30))
    train, rollout = log_softmax(logits), log_softmax(0.9 * logits + random.normal(0, 0.05, logits.shape))
    sampled = (rollout + random.gumbel(size=rollout.shape)).argmax(axis=1)[:, None]
    ids = np.argsort(-rollout, axis=1)[:, :k]

    def at(side: np.ndarray, places: np.ndarray) -> np.ndarray:
        return np.take_along_axis(side, places, axis=1).astype(np.float32).reshape(SEQUENCES, TOKENS, -1)

    return {
        "rollout_logprobs": at(rollout, sampled)[..., 0],
        "old_logprobs": at(train, sampled)[..., 0],
        "token_ids": sampled.reshape(SEQUENCES, TOKENS),
        "advantages": random.normal(advantage, 1, SEQUENCES),
        "topk_ids": ids.reshape(SEQUENCES, TOKENS, k),
        "rollout_topk_logprobs": at(rollout, ids),
        "old_topk_logprobs": at(train, ids),
    }
