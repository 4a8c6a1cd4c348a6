"""Runs whose gap pushes the gradient the same way at every step, or does not; with advantages on record, or without."""

from pathlib import Path

import numpy as np

from ratioscope.collectors.collector import Collector


def biased_run(
    folder: Path, *, bias: float = 0.0, steps: int = 30, is_weighed: bool = True, size: float = 1.0, noise: float = 0.05
) -> Path:
    """The log-ratio is bias * A, and noise. size: of the advantages, one per sequence. is_weighed: they are on record."""
    random = np.random.default_rng(3)
    with Collector(folder, writer="thread") as collector:
        for step in range(steps):
            rollout = -random.exponential(1.0, (8, 16)) - 0.5
            advantages = size * random.normal(0, 1, 8)
            ratios = bias * advantages[:, None] + random.normal(0, noise, rollout.shape)
            given = advantages if is_weighed else None
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=rollout + ratios, advantages=given)
    return folder
