"""The worth of compaction to a reader: the same run, opened and measured before and after.

    python benchmarks/compaction.py [--ranks 8] [--steps 64]

Every rank writes every step through the real Collector (without waiting for the disk, which would measure the disk). Then a fresh
process opens the run and reads the metrics by step, without a cache; the run is compacted and pruned, and read again.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ratioscope import Collector
from ratioscope.app.cli import main as ratioscope

READ = """
import sys, time
from ratioscope import open_run
began = time.perf_counter()
run = open_run(sys.argv[1])
opened = time.perf_counter()
frame = run.metrics()
print(opened - began, time.perf_counter() - opened, len(frame), float(frame["mismatch/tokens"].sum()))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--steps", type=int, default=64)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        write(run, options.ranks, options.steps)
        before = read(run, Path(folder) / "cache-1")
        report("as written", run, before)
        began = time.perf_counter()
        for verb in (["compact", str(run)], ["prune", str(run), "--yes"]):
            assert ratioscope(verb) == 0
        print(f"compact and prune took {time.perf_counter() - began:.1f} s")
        after = read(run, Path(folder) / "cache-2")
        report("compacted", run, after)
        assert after[2:] == before[2:], "compaction changed what is read"
        print(f"reading is {sum(before[:2]) / sum(after[:2]):.1f} times as fast")


def write(run: Path, ranks: int, steps: int) -> None:
    """All ranks of one start, one after the other."""
    sync = os.fsync
    os.fsync = lambda descriptor: None
    try:
        for rank in range(ranks):
            write_rank(run, rank, steps)
    finally:
        os.fsync = sync


def write_rank(run: Path, rank: int, steps: int) -> None:
    random = np.random.default_rng(rank)
    with Collector(run, rank=rank, attempt=0) as collector:
        for step in range(steps):
            rollout = random.normal(-1, 0.3, (2, 50)).astype(np.float32)
            old = rollout + random.normal(0, 0.02, rollout.shape).astype(np.float32)
            collector.log(step=step, rollout_logprobs=rollout, old_logprobs=old)
            if step % 64 == 63:
                collector.flush()


def read(run: Path, cache: Path) -> tuple[float, float, int, float]:
    """Seconds to open, seconds to measure, steps and tokens; by a process of its own."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", READ, str(run)], env=environment, capture_output=True, text=True, check=True
    )
    opened, measured, steps, tokens = done.stdout.split()
    return float(opened), float(measured), int(steps), float(tokens)


def report(name: str, run: Path, found: tuple[float, float, int, float]) -> None:
    """One line: files, size, and the two times."""
    files = [path for path in run.rglob("*") if path.is_file()]
    size = sum(path.stat().st_size for path in files)
    times = f"open {found[0]:6.2f} s   metrics of {found[2]:,} steps {found[1]:6.2f} s"
    print(f"{name:<12} {len(files):>7,} files {size / 1e6:>8.1f} MB   {times}")


if __name__ == "__main__":
    main()
