"""The memory that many tokens need, from recording to metrics. Each part is a process; its largest resident set counts.

    python benchmarks/large.py [--tokens 1e9] [--step 1e6]

A real Collector records steps of generated log-probs of two policies; its writer is a thread of the same process, and its queue
may fill up to its bound. Statistics are then removed, so that `ratioscope index` computes all of them from the rows, on one
process; then `metrics` reads them. 1e9 tokens take 7 GB of disk.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from ratioscope import Collector, layout

MOST = 1.5
"""Aim, in GB."""
SEQUENCE = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--tokens", type=float, default=1e9)
    parser.add_argument("--step", type=float, default=1e6)
    parser.add_argument("--record", type=Path, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record:
        record(chosen.record, int(chosen.tokens), int(chosen.step))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        sizes = ["--tokens", str(chosen.tokens), "--step", str(chosen.step)]
        told("record", [sys.executable, __file__, "--record", str(run), *sizes], folder, chosen.tokens)
        size = sum(file.stat().st_size for file in run.rglob("*.parquet"))
        print(f"{size / 1e9:.2f} GB on disk, {size / chosen.tokens:.1f} bytes a token")
        shutil.rmtree(run / layout.STATISTICS)
        verb = [sys.executable, "-m", "ratioscope"]
        told("index, one process", [*verb, "index", str(run), "--workers", "1"], folder, chosen.tokens)
        told("metrics", [*verb, "metrics", str(run), "--json"], folder, chosen.tokens)


def record(run: Path, tokens: int, step: int) -> None:
    """Steps of new log-probs each, as a trainer would log them."""
    with Collector(run, when_full="wait", writer="thread") as collector:
        for number in range(tokens // step):
            draws = np.random.default_rng(number)
            rollout = -draws.exponential(size=(step // SEQUENCE, SEQUENCE)).astype(np.float32)
            old = np.minimum(rollout + draws.normal(0, 0.03, rollout.shape), 0).astype(np.float32)
            collector.log(step=number, rollout_logprobs=rollout, old_logprobs=old)


def told(name: str, command: list[str], folder: str, tokens: float) -> None:
    """One line: the time, and the largest memory of the process and of its largest child."""
    began = time.perf_counter()
    environment = {**os.environ, "XDG_CACHE_HOME": folder}
    told_ = [sys.executable, "-c", _WATCHED, *command]
    done = subprocess.run(told_, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    seconds, (cpu, most) = time.perf_counter() - began, map(float, done.stdout.split()[-2:])
    print(
        f"{name:<20} {seconds:8.0f} s {cpu / tokens * 1e6:8.2f} us of CPU a token {most / 1e6:6.2f} GB   aim {MOST} GB",
        flush=True,
    )


_WATCHED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
used = resource.getrusage(resource.RUSAGE_CHILDREN)
assert code in (0, 1), code
print(used.ru_utime + used.ru_stime, used.ru_maxrss)
"""


if __name__ == "__main__":
    main()
