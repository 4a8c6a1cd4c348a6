"""How long recording keeps a training thread from the interpreter, beside a writer's process and beside a writer's thread.

    python benchmarks/collector_stalls.py [--tokens 1000000] [--rounds 6] [--texts]

A thread adds up arrays without end, as a trainer's does that calls kernels, while a step of so many tokens is recorded. A stall
is the time of an addition in which the thread slept and other threads of its process ran: it waited for the interpreter's lock.
The thread slept if it gave up its core of its own accord, which Linux counts; the time that the others ran is their processor
time. So neither a busy core nor a hypervisor that takes a core away is a stall, of the thread or of the one that holds the lock;
the line of each kind says how often the machine stood still besides. Rounds without a recording take turns with those of both
writers: their stalls are what the figures owe to the measurement, and are taken off those of the others by length.
"""

import argparse
import resource
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from collector_log import logprobs

from ratioscope import Collector

SECONDS = 1.5
LIMITS = (0.0005, 0.001, 0.005)
"""Stalls longer than these are counted, seconds."""
QUIET = "nothing recorded"
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
    found: dict[str, list[Any]] = {QUIET: [], "writer: process": [], "writer: thread": []}
    with tempfile.TemporaryDirectory() as folder:
        collectors = {
            f"writer: {writer}": Collector(Path(folder) / writer, writer=writer) for writer in ("process", "thread")
        }
        for step in range(options.rounds + 1):
            for name, collector in {QUIET: None, **collectors}.items():
                if collector is not None:
                    collector.log(step=step, **arrays)
                if step:  # the first step loads what it needs
                    found[name].append(waits(SECONDS))
                if collector is not None:
                    collector.flush(None)
        for collector in collectors.values():
            collector.close()
    taken = {name: np.concatenate(rounds, axis=1) for name, rounds in found.items()}
    for name, (stalls, machine) in taken.items():
        report(name, stalls, machine, taken[QUIET][0], SECONDS * options.rounds)


def waits(seconds: float) -> Seconds:
    """For each addition the seconds that it waited for the lock, and those in which the machine stood still, shape (2, n)."""
    values, found, own = np.zeros(200_000, np.float32), [], threading.get_native_id()
    others = [
        time.pthread_getcpuclockid(thread.ident)
        for thread in threading.enumerate()
        if thread.ident is not None and thread.native_id != own
    ]
    with open(f"/proc/self/task/{own}/schedstat", "rb", buffering=0) as scheduled:
        end = time.perf_counter() + seconds
        while (began := time.perf_counter()) < end:
            ran, slept = sum(map(time.clock_gettime, others)), _sleeps()
            mine = time.thread_time() + _lacked(scheduled)
            np.add(values, 1, out=values)
            idle = max(0.0, time.perf_counter() - began - (time.thread_time() + _lacked(scheduled) - mine))
            stall = min(idle, sum(map(time.clock_gettime, others)) - ran) if _sleeps() > slept else 0.0
            found.append((stall, idle - stall))
    return np.array(found).T


def _sleeps() -> int:
    """The number of times that this thread has given up its core of its own accord."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw


def _lacked(schedstat: Any) -> float:
    """Seconds that a thread has waited for a core."""
    schedstat.seek(0)
    return int(schedstat.read(100).split()[1]) / 1e9


def report(name: str, stalls: Seconds, machine: Seconds, quiet: Seconds, seconds: float) -> None:
    """One line. quiet: the stalls of as many seconds without a recording."""
    of_name = ", ".join(
        f"over {limit * 1e3:g} ms: {((stalls > limit).sum() - (quiet > limit).sum() * (name != QUIET)) / seconds:.2f}"
        for limit in LIMITS
    )
    still = (machine > LIMITS[1]).sum() / seconds
    print(
        f"{name:<18} stalls a second {of_name}; longest {stalls.max() * 1e3:.2f} ms, "
        f"{stalls.sum() / seconds * 1e3:.2f} ms a second; the machine stood still over 1 ms {still:.1f} times a second"
    )


if __name__ == "__main__":
    main()
