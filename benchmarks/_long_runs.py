"""Runs of many steps, made in seconds: statistics of a few real batches, measured by the engine, under every step's number.

Segments are written as the collector writes them and committed with their digests, so that a reader cannot tell. Runs are kept
under the system's temporary folder and made again only where they are missing.
"""

import shutil
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

# this folder too: benchmarks.performance imports this file from a package
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from _overall import Repeated

# pyright does not see what sys.path holds at run time
from support.run_folders import FakeWriter, by_step, committed, replaced  # pyright: ignore[reportMissingImports]

from ratioscope import layout
from ratioscope.collectors.writing.parquet_file import parquet_bytes
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import arrow_schema

FOLDER = Path(tempfile.gettempdir()) / "ratioscope-long-runs-6"
PHASES = 4
"""Batches that the gap grows through over a run."""


@dataclass(frozen=True)
class Shape:
    """A step's batch: sequences of so many tokens each. measured: steps of a segment that are measured; the others repeat."""

    name: str
    sequences: int
    tokens: int
    measured: int


SHORT = Shape("short", 64, 60, 16)
LONG = Shape("long", 2, 60_000, 2)


def long_runs(steps: int, count: int = 8, folder: Path = FOLDER) -> list[Path]:
    """`count` runs of that many steps; the second half of them of sequences a thousand times as long."""
    shapes = [SHORT if index < (count + 1) // 2 else LONG for index in range(count)]
    roots = [folder / f"{shape.name}-{index}-{steps}" for index, shape in enumerate(shapes)]
    with ProcessPoolExecutor(2) as pool:
        list(pool.map(partial(_made, steps=steps), roots, shapes, range(count)))
    return roots


def _made(root: Path, shape: Shape, seed: int, steps: int) -> None:
    if (root / "done").exists():
        return
    shutil.rmtree(root, ignore_errors=True)
    write(root, shape, seed, steps)
    (root / "done").touch()


def write(root: Path, shape: Shape, seed: int, steps: int) -> None:
    """One writer's run; its last two steps have token rows."""
    fake = FakeWriter(root, f"r00000-host-{seed}-abcdef").open()
    repeated = Repeated(fake)
    phases = [_measured(shape, seed, phase) for phase in range(PHASES)]
    for segment, first in enumerate(range(0, steps, layout.SEGMENT_STEPS)):
        block = range(first, min(first + layout.SEGMENT_STEPS, steps))
        rows = _renumbered(phases[first * PHASES // steps], block)
        path, data = layout.statistics_file(fake.writer, segment), parquet_bytes(rows, {}, codec="lz4")
        fake.put(path, data)
        for last in range(1, len(block) + 1):  # a line per step, as a growing segment leaves them
            whole = last == len(block)
            fake.say(**(committed(path, data) if whole else committed(path, b"-")), steps=list(block[:last]))
        repeated.add(committed(path, data), rows)
        if segment % 20 == 0:
            fake.event("weight_sync", first, "the engine has the trainer's weights")
    repeated.end()
    for rows in by_step(records(shape, seed, range(steps - 2, steps), PHASES - 1)):
        fake.step(rows, with_statistics=False)
    fake.close()


def _measured(shape: Shape, seed: int, phase: int) -> list[pa.Table]:
    """Statistics of the steps that are measured, one table each."""
    return [statistics(joined(rows)) for rows in by_step(records(shape, seed, range(shape.measured), phase))]


def _renumbered(measured: Sequence[pa.Table], block: range) -> pa.Table:
    """One of the measured tables for each step of the block, in an order that differs from block to block."""
    chosen = np.random.default_rng(block.start).integers(len(measured), size=len(block))
    return pa.concat_tables(
        replaced(measured[index], "step", pa.array(np.full(len(measured[index]), step)))
        for step, index in zip(block, chosen, strict=True)
    )


def records(shape: Shape, seed: int, steps: range, phase: int = 0) -> pa.Table:
    """Token rows of all three policies, from engines whose gap grows with the phase and with the lag of their weights."""
    draws = np.random.default_rng((seed, phase))
    rows = len(steps) * shape.sequences
    tokens = rows * shape.tokens
    rollout = -draws.exponential(0.8, tokens)
    lag = draws.integers(0, 4, rows)
    noise = 0.01 * (1 + phase) * (1 + np.repeat(lag, shape.tokens)) * (0.5 - rollout)
    old = np.minimum(rollout + noise * draws.normal(size=tokens), -1e-6)
    current = np.minimum(old + 0.01 * draws.normal(size=tokens), -1e-6)
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * shape.tokens)
    step = np.repeat(np.arange(steps.start, steps.stop), shape.sequences)
    columns = {
        "attempt": pa.array(np.zeros(rows, np.int32)),
        "step": pa.array(step),
        "minibatch": pa.array(np.zeros(rows, np.int32)),
        "sequence_id": pa.array([f"{one}-{index}" for index, one in enumerate(step.tolist())]),
        "replica": pa.array([f"vllm-{index % 4}" for index in range(rows)]),
        "rollout_version_min": pa.array(step - lag),
        "rollout_version_max": pa.array(step - lag),
        "trainer_version": pa.array(step),
        "reward": pa.array(draws.integers(0, 2, rows).astype(np.float64)),
        "token_ids": _lists(offsets, draws.integers(0, 32_000, tokens)),
        "entropy": _lists(offsets, draws.exponential(0.8, tokens)),
        **{
            f"{policy}_logprobs": _lists(offsets, values)
            for policy, values in (("rollout", rollout), ("old", old), ("current", current))
        },
    }
    schema = arrow_schema()
    return pa.table(
        [
            columns[field.name].cast(field.type) if field.name in columns else pa.nulls(rows, field.type)
            for field in schema
        ],
        schema=schema,
    )


def _lists(offsets: Any, values: Any) -> "pa.Array[Any]":
    return pa.ListArray.from_arrays(offsets, pa.array(values))
