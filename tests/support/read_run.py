"""A run that a referee read in part: steps 0 to 3 of 6, at step 3 half of the sequences. The engine stands off."""

from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector, open_run, record_readings

STEPS = 6
READ = (0, 1, 2, 3)
SEQUENCES = 8
APART, ROUNDING, NOISE = 0.2, 1e-6, 2e-6
"""Standard deviation of the engine's error, of the trainer's, and of the referee's second reading, nats."""


def read_run(folder: Path, steps: int = STEPS, read: tuple[int, ...] = READ) -> Path:
    with Collector(folder, name="read", strict=True, writer="thread", when_full="wait") as collector:
        for step in range(steps):
            old = _logprobs(step)
            rollout = _moved(old, step + 100, APART)
            collector.log(
                step=step,
                rollout_logprobs=rollout,
                old_logprobs=old,
                sequence_ids=[f"{step}-{index}" for index in range(SEQUENCES)],
                group_ids=[f"g{index // 2}" for index in range(SEQUENCES)],
            )
    for name, size in (("referee", ROUNDING), ("referee_again", NOISE)):
        for step in read:
            _read(folder, name, step, size, is_half=step == READ[-1])
    return folder


def _read(folder: Path, name: str, step: int, size: float, *, is_half: bool) -> None:
    rows = open_run(folder).rows(step, ["old_logprobs"]).slice(0, SEQUENCES // 2 if is_half else SEQUENCES)
    lists = [np.array(each, np.float32) for each in rows["old_logprobs"].to_pylist()]
    columns = {key: rows[key] for key in ("attempt", "step", "sequence_id")}
    made_of = {"model": "tiny", "dtype": "float32", "name": name}
    record_readings(folder, name, columns | {"logprobs": _moved(lists, step + 200 + len(name), size)}, made_of)


def _logprobs(step: int) -> list[Any]:
    chance = np.random.default_rng(step)
    return [-1 - chance.exponential(1.0, 20 + 3 * index).astype(np.float32) for index in range(SEQUENCES)]


def _moved(lists: list[Any], seed: int, size: float) -> list[Any]:
    chance = np.random.default_rng(seed)
    return [(each + chance.normal(0, size, len(each))).astype(np.float32) for each in lists]
