"""How long recording keeps a training thread from the interpreter, beside a writer's process and beside a writer's thread.

    python benchmarks/collector_stalls.py [--tokens 1000000] [--texts]

A thread adds up arrays without end, as a trainer's does that calls kernels, while a step of so many tokens is recorded. The
figures are the time of each addition in which the thread neither computed nor waited for a core: it waited for the interpreter's
lock. Linux's scheduler counts both, so that the figures hold on a busy machine too.
"""

import argparse
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
from collector_log import logprobs

from ratioscope import Collector

SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--texts", action="store_true", help="log the text of each token, too")
    options = parser.parse_args()
    arrays = logprobs(options.tokens)
    if options.texts:
        rows, width = arrays["rollout_logprobs"].shape
        arrays["token_texts"] = [[f"t{column}" for column in range(width)] for _ in range(rows)]
    report("nothing recorded", waits(SECONDS))
    for writer in ("process", "thread"):
        with tempfile.TemporaryDirectory() as folder, Collector(Path(folder) / "run", writer=writer) as collector:  # type: ignore[arg-type]
            report(f"writer: {writer}", beside(collector, arrays, options.steps))
            collector.flush(None)


def beside(collector: Collector, arrays: dict[str, Any], steps: int) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """What the thread waited for while steps were recorded, the first, which loads what it needs, left out."""
    collector.log(step=0, **arrays)
    collector.flush(None)
    found = []
    for step in range(1, steps + 1):
        collector.log(step=step, **arrays)
        found.append(waits(SECONDS))
        collector.flush(None)
    return np.concatenate(found)


def waits(seconds: float) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Seconds of each addition in which the thread had a core and did nothing."""
    values, found, scheduler = (
        np.zeros(200_000, np.float32),
        [],
        f"/proc/self/task/{threading.get_native_id()}/schedstat",
    )
    with open(scheduler, "rb", buffering=0) as file:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            before = _scheduled(file)
            np.add(values, 1, out=values)
            found.append(time.perf_counter() - began - (_scheduled(file) - before))
    return np.array(found)


def _scheduled(file: Any) -> float:
    """Seconds that the thread has run, or waited for a core."""
    file.seek(0)
    ran, waited, _ = map(int, file.read(100).split())
    return (ran + waited) / 1e9


def report(name: str, waited: "np.ndarray[Any, np.dtype[np.float64]]") -> None:
    high, longest, over = np.quantile(waited, 0.999) * 1e3, waited.max() * 1e3, int((waited > 0.002).sum())
    print(f"{name:<18} p99.9 {high:7.3f} ms   longest {longest:7.3f} ms   over 2 ms: {over} of {len(waited)}")


if __name__ == "__main__":
    main()
