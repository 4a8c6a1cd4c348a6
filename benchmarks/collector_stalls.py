"""How long recording keeps a training thread from the interpreter, beside a writer's process and beside a writer's thread.

    python benchmarks/collector_stalls.py [--tokens 1000000] [--rounds 6] [--texts]

A thread adds up arrays without end, as a trainer's does that calls kernels, while a step of so many tokens is recorded. The
figures are the time of each addition in which the thread neither computed nor waited for a core: it waited for the interpreter's
lock. Time in which another thread of the process had the lock and waited for a core itself is taken off. Linux's scheduler counts
all of them, so that the figures hold on a busy machine too. What the machine does by itself (a hypervisor takes the core away)
shows in the rounds without a recording; all three kinds of rounds take turns.
"""

import argparse
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from collector_log import logprobs

from ratioscope import Collector

SECONDS = 1.5
LIMITS = (0.001, 0.005)
"""Stalls longer than these are counted, seconds."""
Seconds = npt.NDArray[np.float64]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--texts", action="store_true", help="log the text of each token, too")
    options = parser.parse_args()
    arrays = logprobs(options.tokens)
    if options.texts:
        rows, width = arrays["rollout_logprobs"].shape
        arrays["token_texts"] = [[f"t{column}" for column in range(width)] for _ in range(rows)]
    found: dict[str, list[Any]] = {"nothing recorded": [], "writer: process": [], "writer: thread": []}
    with tempfile.TemporaryDirectory() as folder:
        collectors = {
            f"writer: {writer}": Collector(Path(folder) / writer, writer=writer) for writer in ("process", "thread")
        }
        for step in range(options.rounds + 1):
            for name, collector in {"nothing recorded": None, **collectors}.items():
                if collector is not None:
                    collector.log(step=step, **arrays)
                if step:  # the first step loads what it needs
                    found[name].append(waits(SECONDS))
                if collector is not None:
                    collector.flush(None)
        for collector in collectors.values():
            collector.close()
    for name, rounds in found.items():
        report(name, np.concatenate(rounds), SECONDS * options.rounds)


def waits(seconds: float) -> Seconds:
    """Seconds of each addition in which the thread had a core and did nothing, and no thread with the lock lacked a core."""
    values, found, own = np.zeros(200_000, np.float32), [], threading.get_native_id()
    with ExitStack() as files:
        me, *others = [
            files.enter_context(open(f"/proc/self/task/{each}/schedstat", "rb", buffering=0))
            for each in (own, *(t.native_id for t in threading.enumerate() if t.native_id != own))
        ]
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            before, lacked = sum(_scheduled(me)), sum(_scheduled(each)[1] for each in others)
            np.add(values, 1, out=values)
            waited = time.perf_counter() - began - (sum(_scheduled(me)) - before)
            lacking = sum(_scheduled(each)[1] for each in others) - lacked if waited > LIMITS[0] else 0.0
            found.append(max(0.0, waited - lacking))
    return np.array(found)


def _scheduled(file: Any) -> tuple[float, float]:
    """Seconds that a thread has run, and that it has waited for a core."""
    file.seek(0)
    ran, waited, _ = map(int, file.read(100).split())
    return ran / 1e9, waited / 1e9


def report(name: str, waited: Seconds, seconds: float) -> None:
    """One line."""
    high, highest, longest = np.quantile(waited, (0.99, 0.999, 1.0)) * 1e3
    over = ", ".join(f"over {limit * 1e3:.0f} ms: {(waited > limit).sum() / seconds:.1f} a second" for limit in LIMITS)
    print(f"{name:<18} p99 {high:6.3f} ms   p99.9 {highest:6.3f} ms   longest {longest:7.3f} ms   {over}")


if __name__ == "__main__":
    main()
