"""Runs of statistics alone, as long as wanted, written in a moment: what the pages of several runs are tested and measured on."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope.metrics.engines.numpy_engine import statistics
from support.edge_runs import records_of
from support.run_folders import FakeWriter, write_run_file


def write_statistics_run(
    path: Path,
    steps: int = 30,
    *,
    seed: int = 0,
    size: float = 0.03,
    rise: float = 0.0,
    every: int = 1,
    close: bool = True,
    chunk: int = 2_500,
    **info: Any,
) -> Path:
    """Two sequences of six tokens a step; log-ratios of this size, which rises by `rise` until the last step.

    info: members of run.json, such as config.
    """
    write_run_file(path, **info)
    writer = FakeWriter(path, segment_steps=chunk).open()
    draws = np.random.default_rng(seed)
    for first in range(0, steps, chunk):
        at = np.repeat(np.arange(first, min(first + chunk, steps)) * every, 2)
        rollout = -draws.exponential(1.0, (len(at), 6))
        apart = size + rise * at / (steps * every)
        writer.add_statistics(
            statistics(records_of(at, rollout, -np.abs(rollout + draws.normal(0, 1, rollout.shape) * apart[:, None])))
        )
    if close:
        writer.close()
    return path
