"""Small runs made of arrays, with the fault that a test puts in: `recorded(folder, change)`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector, Run, open_run
from ratioscope.arrays import Floats

STEPS, ROWS, LENGTH = 6, 16, 40
Change = Callable[[int, dict[str, Any]], dict[str, Any]]
"""(step, arguments of Collector.log) -> the arguments to log."""


def arguments(step: int, seed: int = 0) -> dict[str, Any]:
    """The log-probs of a healthy step: noise of 0.02 nats, ROWS sequences of LENGTH tokens."""
    draws = np.random.default_rng((seed, step))
    rollout = -draws.gamma(1.0, 0.7, (ROWS, LENGTH))
    return {"rollout_logprobs": rollout, "old_logprobs": near(rollout, draws)}


def near(logprobs: Floats, draws: np.random.Generator, size: float = 0.02) -> Floats:
    """Other log-probs at so small a distance."""
    return np.minimum(logprobs + draws.normal(0, size, logprobs.shape), 0.0)


def recorded(folder: Path, change: Change, steps: int = STEPS, **options: Any) -> Run:
    """A run of which each step was changed before it was logged. Any: options of the collector."""
    with Collector(folder, writer="thread", **options) as collector:
        for step in range(1, steps + 1):
            collector.log(step=step, **change(step, arguments(step)))
    return open_run(folder)
