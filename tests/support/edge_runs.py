"""Run folders for the tests of pages: real runs, and every edge case a page must bear. Written by the real collector.

Each is made once per folder, and a folder can be shared by all tests of a session.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.collectors.collector import Collector
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import arrow_schema
from support.frames import hostile_texts
from support.recorded import recorded
from support.run_folders import FakeWriter

Lists = Sequence[Sequence[float]]


def healthy(folder: Path) -> None:
    """A real run of equal weights, all three policies."""
    recorded("trl_vllm_base", folder, name="healthy")


def stale(folder: Path) -> None:
    """A real run whose engine was synced every fourth round only."""
    recorded("trl_vllm_stale4", folder, name="stale")


def two_policies(folder: Path) -> None:
    """A real run with rollout and old only: no total, no drift, no reward."""
    recorded("vllm_base_fp32", folder, name="two policies")


def bypass(folder: Path) -> None:
    """Rollout and current only: `total` is the only gap on record."""
    with Collector(folder, trainer="fake") as collector:
        for step in range(5):
            rollout = _logprobs(step, (12, 7, 3))
            collector.log(step=step, minibatch=0, rollout_logprobs=rollout, current_logprobs=_moved(rollout, step))


def one_step(folder: Path) -> None:
    with Collector(folder) as collector:
        rollout = _logprobs(0, (9, 4))
        collector.log(step=17, rollout_logprobs=rollout, old_logprobs=_moved(rollout, 1))


def one_token(folder: Path) -> None:
    with Collector(folder) as collector:
        collector.log(step=0, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])


def hostile(folder: Path) -> None:
    """Every string that a run can hold is an attack."""
    texts = hostile_texts()
    with Collector(folder, trainer=texts[0], name=texts[10], config={texts[1]: texts[2]}) as collector:
        for step in range(2):
            rollout = _logprobs(step, (len(texts), 3))
            collector.log(
                step=step,
                rollout_logprobs=rollout,
                old_logprobs=_moved(rollout, step),
                sequence_ids=[texts[0] + str(step), texts[10] + str(step)],
                group_ids=texts[11:13],
                replica=texts[5],
                finish_reasons=texts[6:8],
                prompt_texts=texts[4:6],
                token_texts=[texts, texts[:3]],
                token_ids=[list(range(len(texts))), [1, 2, 3]],
            )
            collector.event(texts[3], step=step, note=texts[23])


def holes(folder: Path) -> None:
    """NaN, infinities, positive log-probs, an empty mask, an empty response, a gap between steps, several minibatches."""
    with Collector(folder) as collector:
        for step in (0, 1, 5, 100):
            rollout = _logprobs(step, (8, 6, 5, 0))
            old = _moved(rollout, step)
            old[0][2], old[1][0], rollout[2][1] = float("nan"), float("-inf"), 0.5
            mask = [[True] * 3 + [False] * 2 + [True] * 3, [True] * 6, [False] * 5, []]
            ids = [f"{step}-{row}" for row in range(4)]
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old, mask=mask, sequence_ids=ids)
            for minibatch in range(2):
                current = _moved(old, minibatch)
                collector.log(step=step, minibatch=minibatch, current_logprobs=current, sequence_ids=ids)


def long_response(folder: Path) -> None:
    """One sequence of 5,000 tokens, without ids or text, beside a short one; versions and turns per token."""
    lengths = (5000, 3)
    with Collector(folder) as collector:
        rollout = _logprobs(0, lengths)
        collector.log(
            step=3,
            rollout_logprobs=rollout,
            old_logprobs=_moved(rollout, 2),
            entropy=[[abs(value) for value in row] for row in rollout],
            turns=[[place // 1000 for place in range(length)] for length in lengths],
            rollout_versions=[[place // 2500 for place in range(length)] for length in lengths],
            trainer_version=2,
            advantages=[0.5, -0.5],
            replica=["engine-0", "engine-1"],
        )


def many_steps(folder: Path, steps: int = 10_000, chunk: int = 2_500) -> None:
    """A long run: two short sequences a step, a slow rise and a burst; statistics of all steps, token rows of a few.

    Written without the collector, whose care for every single step would take a quarter of an hour.
    """
    writer = FakeWriter(folder, segment_steps=chunk).open()
    draws = np.random.default_rng(0)
    for first in range(0, steps, chunk):
        at = np.repeat(np.arange(first, min(first + chunk, steps)), 2)
        size = 0.02 + 0.05 * at / steps + np.where((at > 0.6 * steps) & (at < 0.61 * steps), 1.0, 0.0)
        rollout = -draws.exponential(1.0, (len(at), 5))
        rows = records_of(at, rollout, -np.abs(rollout + draws.normal(0, 1, rollout.shape) * size[:, None]))
        writer.add_statistics(statistics(rows))
        writer.step(rows.slice(0, 2), with_statistics=False)
    for step in range(0, steps, max(1, steps // 20)):
        writer.event("weight_sync", step, f"version {step}")
    writer.close()


def empty(folder: Path) -> None:
    """A run that has begun and holds nothing yet."""
    Collector(folder).close()


RUNS: dict[str, Callable[[Path], None]] = {
    make.__name__: make
    for make in (
        stale, healthy, two_policies, bypass, one_step, one_token, hostile, holes, long_response, many_steps, empty,
    )
}  # fmt: skip


def made(folder: Path, name: str) -> Path:
    """The run of this name below the folder, written if it is not there."""
    path = folder / name
    if not path.exists():
        RUNS[name](path)
    return path


def _logprobs(seed: int, lengths: Sequence[int]) -> list[list[float]]:
    draws = np.random.default_rng(seed)
    return [(-draws.exponential(1.0, length)).tolist() for length in lengths]


def _moved(logprobs: Lists, seed: int, size: float = 0.05) -> list[list[float]]:
    draws = np.random.default_rng(seed + 1000)
    return [[-abs(value + float(draws.normal(0, size))) for value in row] for row in logprobs]


def records_of(steps: Any, rollout: Any, old: Any) -> pa.Table:
    """Records of one sequence per step given, with `rollout` and `old` of shape (sequences, tokens)."""
    known = {
        "attempt": [0] * len(steps),
        "step": steps,
        "sequence_id": [f"{step}-{row}" for row, step in enumerate(steps)],
        "rollout_logprobs": list(rollout),
        "old_logprobs": list(old),
    }
    schema = arrow_schema()
    columns = [pa.array(known[f.name], f.type) if f.name in known else pa.nulls(len(steps), f.type) for f in schema]
    return pa.table(columns, schema=schema)
