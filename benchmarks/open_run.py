"""How long opening a run of 10,000 steps takes, beside a plain read of the same statistics files.

    python benchmarks/open_run.py [--steps 10000] [--writers 1]

Makes the run in a temporary folder: statistics of one real step, repeated under other step numbers, in segments as the
collector writes them; token files are links to one file, because opening reads none of them. Prints seconds and ratios.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
from _overall import Repeated

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

# pyright does not see what sys.path holds at run time
from support import real_runs  # pyright: ignore[reportMissingImports]
from support.run_folders import (  # pyright: ignore[reportMissingImports]
    FakeWriter,
    by_step,
    committed,
    parquet_bytes,
    replaced,
    token_facts,
)

from ratioscope import layout, open_run
from ratioscope.metrics.engines.numpy_engine import statistics


def make(root: Path, steps: int, writers: int) -> None:
    """A run of that many steps and writers."""
    records = by_step(real_runs.records("trl_vllm_stale4"))[-1]
    measured = statistics(records)
    data = parquet_bytes(records)
    for rank in range(writers):
        fake = FakeWriter(root, f"r{rank:05d}-host-1-abcdef", rank).open()
        _write(fake, steps, measured, data, token_facts(records))
        fake.close()


def _write(fake: FakeWriter, steps: int, measured: pa.Table, data: bytes, facts: Any) -> None:
    original = fake.root / "original.parquet"
    original.write_bytes(data)
    repeated = Repeated(fake)
    for first in range(0, steps, layout.SEGMENT_STEPS):
        block = range(first, min(first + layout.SEGMENT_STEPS, steps))
        for step in block:
            path = layout.token_file(step, fake.writer, 0)
            (fake.root / path).parent.mkdir(parents=True, exist_ok=True)
            os.link(original, fake.root / path)
            fake.offered, fake.written = fake.offered + facts["rows"], fake.written + facts["rows"]
            fake.say(**{**committed(path, data), **facts, "step": step, "offered": fake.offered, "dropped": 0})
        segment = pa.concat_tables(_like(measured, step) for step in block)
        path, content = layout.statistics_file(fake.writer, first // layout.SEGMENT_STEPS), parquet_bytes(segment)
        fake.put(path, content)
        for last in range(1, len(block) + 1):  # one line per step, as a growing segment leaves them
            digest = committed(path, content) if last == len(block) else {**committed(path, b""), "bytes": 0}
            fake.say(**{**digest, "steps": list(block[:last])})
        repeated.add(committed(path, content), segment)
    repeated.end()
    original.unlink()


def _like(measured: pa.Table, step: int) -> pa.Table:
    """The same statistics at another step, each number a little different, so that files have their true size."""
    noise = np.random.default_rng(step)
    for name in measured.column_names:
        if pa.types.is_floating(measured.schema.field(name).type):
            values = measured[name].to_pandas().to_numpy(np.float64)
            measured = replaced(
                measured, name, pa.array(values * noise.uniform(0.99, 1.01, len(values)), from_pandas=True)
            )
    return replaced(measured, "step", pa.array(np.full(len(measured), step)))


def timed(label: str, work: Callable[[], Any], unit: float | None = None) -> float:
    """Prints and returns the seconds of one call."""
    start = time.perf_counter()
    work()
    seconds = time.perf_counter() - start
    print(f"{label:55s} {seconds:9.4f} s" + (f"   x {seconds / unit:.2f}" if unit else ""))
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--writers", type=int, default=1)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        make(root, chosen.steps, chosen.writers)
        files = sorted((root / layout.STATISTICS).glob("*.parquet"))
        size = sum(file.stat().st_size for file in files)
        print(f"{chosen.steps} steps, {chosen.writers} writers, {len(files)} segments of {size / 1e6:.0f} MB together")
        unit = timed("pyarrow dataset, every column", lambda: ds.dataset(files).to_table())
        timed(
            "  the same, rows of slice `all`",
            lambda: ds.dataset(files).to_table(filter=ds.field("slice") == "all"),
            unit,
        )
        timed("  sha256 of the segments", lambda: [hashlib.sha256(file.read_bytes()) for file in files], unit)
        timed("open_run", lambda: open_run(root), unit)
        run = open_run(root)
        timed("metrics by step, first time", lambda: run.metrics(), unit)
        timed("metrics by step, again", lambda: run.metrics(), unit)
        timed("metrics by step and lag, first time", lambda: run.metrics(("step", "lag")), unit)
        timed("metrics of the whole run", lambda: run.metrics(()), unit)
        timed("distribution of token weights", lambda: run.distribution("token", "mismatch"), unit)
        timed("refresh without news", run.refresh, unit)
        more = FakeWriter(root, "r99999-host-2-abcdef", 99).open()
        more.step(
            replaced(by_step(real_runs.records("trl_vllm_stale4"))[-1], "step", pa.array(np.full(32, chosen.steps)))
        )
        timed("refresh with one more step", run.refresh, unit)
        timed("metrics by step after it", lambda: run.metrics(), unit)


if __name__ == "__main__":
    main()
