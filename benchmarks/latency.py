"""A run on a store that answers each call late: what opening, following and compacting it take, and how many calls they make.

    python benchmarks/latency.py [--steps 100 600] [--ms 5]

Each call of Python that a network file system has to answer (open, scandir, stat, mkdir, rename, unlink, fsync) waits. Reads of
an open file do not: commit logs and statistics are read whole, in one request each. A real Collector records the runs before.
"""

import argparse
import os
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector
from ratioscope.app.cli import main as verb
from ratioscope.ingest.run import Run, open_run

CALLS = (
    "open",
    "scandir",
    "stat",
    "lstat",
    "listdir",
    "mkdir",
    "rename",
    "replace",
    "unlink",
    "rmdir",
    "fsync",
    "link",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--steps", type=int, nargs="+", default=[100, 600])
    parser.add_argument("--ms", type=float, default=5.0)
    chosen = parser.parse_args()
    for steps in chosen.steps:
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            measure(Path(folder) / "run", steps, chosen.ms / 1e3)


def measure(run: Path, steps: int, seconds: float) -> None:
    """One line for each thing that readers do."""
    with Collector(run, rank=0, attempt=0, when_full="wait") as collector:
        record(collector, 0, steps)
    warm = open_run(run)  # loads what is loaded on first use
    warm.metrics()
    with late_calls(seconds) as counts:
        opened: Run = told(f"{steps} steps: open", lambda: open_run(run), counts)
        told(f"{steps} steps: look, nothing is new", opened.refresh, counts)
        told(f"{steps} steps: first metrics", opened.metrics, counts)
    with Collector(run, rank=1, attempt=0, writer="thread") as collector:
        record(collector, steps, steps + 2)
    with late_calls(seconds) as counts:
        told(f"{steps} steps: follow, two steps more", lambda: (opened.refresh(), opened.metrics()), counts)
        told(f"{steps} steps: compact", lambda: quietly(lambda: verb(["compact", str(run)])), counts)


def record(collector: Collector, first: int, end: int) -> None:
    """Small steps: it is files that are counted."""
    draws = np.random.default_rng(0)
    for step in range(first, end):
        rollout = draws.normal(-1, 0.3, (2, 50)).astype(np.float32)
        collector.log(step=step, rollout_logprobs=rollout, old_logprobs=rollout + np.float32(0.01))


@contextmanager
def late_calls(seconds: float) -> Iterator[Counter[str]]:
    """Lets every call wait, and counts them."""
    counts, real = Counter[str](), {name: getattr(os, name) for name in CALLS}

    def late(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            counts[name] += 1
            time.sleep(seconds)
            return real[name](*arguments, **options)

        return call

    for name in CALLS:
        setattr(os, name, late(name))
    try:
        yield counts
    finally:
        for name, own in real.items():
            setattr(os, name, own)


def told(what: str, work: Callable[[], Any], counts: Counter[str]) -> Any:
    """Does the work, and prints its calls and seconds."""
    counts.clear()
    began = time.perf_counter()
    found = work()
    most = ", ".join(f"{name} {count:,}" for name, count in counts.most_common(4))
    print(f"{what:<36} {counts.total():7,} calls {time.perf_counter() - began:8.2f} s   {most}")
    return found


def quietly(work: Callable[[], object]) -> None:
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere):
        work()


if __name__ == "__main__":
    main()
