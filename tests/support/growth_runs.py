"""Runs of real tokens drawn anew at every step, whose mix or size changes at one step: what growth is tested on."""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Floats
from ratioscope.ingest.analysis.evidence import evidence_of_records
from ratioscope.metrics.engines.numpy_engine import statistics
from support import real_runs
from support.edge_runs import records_of
from support.run_folders import FakeWriter, replaced, write_run_file

STEPS, SEQUENCES, TOKENS = 60, 24, 20
ONSET = 30


@cache
def pool() -> tuple[Floats, Floats]:
    """(log-probs of the sampler, log-ratios) of the tokens of a healthy real run."""
    evidence = evidence_of_records(real_runs.records("trl_vllm_base"), "mismatch")
    return evidence.earlier, evidence.log_ratio


def usual(earlier: Floats) -> Floats:
    """Every token is drawn as often as any other."""
    return np.ones_like(earlier)


def sharp(earlier: Floats) -> Floats:
    """Tokens of low probability are drawn more often, as with a larger entropy."""
    return 0.05 + (1 - np.exp(earlier)) ** 2


def batch(draws: np.random.Generator, weight: Callable[[Floats], Floats], size: float = 1.0) -> tuple[Floats, Floats]:
    """(log-probs of the sampler, of the trainer) of one step, shapes (SEQUENCES, TOKENS). size: factor of K3."""
    earlier, ratio = pool()
    chances = weight(earlier)
    chosen = draws.choice(len(earlier), (SEQUENCES, TOKENS), p=chances / chances.sum())
    return earlier[chosen], np.minimum(earlier[chosen] + np.sqrt(size) * ratio[chosen], -1e-7)


def growth_run(
    path: Path,
    weight: Callable[[Floats], Floats] = usual,
    size: float = 1.0,
    seed: int = 0,
    attempts: Mapping[str, Any] | None = None,
    every: int = 0,
    before: Callable[[Floats], Floats] = usual,
    fact: tuple[str, float, float] | None = None,
) -> Path:
    """A run that draws tokens by `before`, then by `weight`, and has `size` times the K3 of each, from ONSET on.

    attempts: members of run.json of a second attempt that begins at ONSET; None: one attempt. every: steps between weight syncs.
    fact: a column of the Record, and its value before ONSET and from it on.
    """
    draws = np.random.default_rng(seed)
    second = [] if attempts is None else [{"attempt": 1, **attempts}]
    write_run_file(path, versions={"vllm": "0.10"}, attempts=[{"attempt": 0}, *second])
    parts = [range(ONSET), range(ONSET, STEPS)] if second else [range(STEPS)]
    for attempt, steps in enumerate(parts):
        writer = FakeWriter(path, f"r00000-host-{attempt}-abcdef", attempt=attempt, segment_steps=STEPS).open()
        batches = [batch(draws, *((weight, size) if step >= ONSET else (before, 1.0))) for step in steps]
        rollout, old = (np.concatenate(side) for side in zip(*batches, strict=True))
        records = records_of(np.repeat(list(steps), SEQUENCES), rollout, old)
        if fact:
            values = np.where(np.repeat(list(steps), SEQUENCES) < ONSET, *fact[1:])
            noisy = pa.array(values + draws.normal(0, 0.1, len(values))).cast(records.schema.field(fact[0]).type)
            records = replaced(records, fact[0], noisy)
        for at, step in enumerate(steps):
            if step % 6 == 5:
                writer.step(records.slice(at * SEQUENCES, SEQUENCES), with_statistics=False)
            if every and step % every == 0:
                writer.event("weight_sync", step, f"version {step}")
        writer.add_statistics(_of_attempt(statistics(records), attempt))
        writer.close()
    return path


def _of_attempt(rows: pa.Table, attempt: int) -> pa.Table:
    return replaced(rows, "attempt", pa.array(np.full(len(rows), attempt), rows.schema.field("attempt").type))
