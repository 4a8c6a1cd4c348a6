"""The cost of `Collector.log` for the trainer's thread, beside the usual ways of keeping the same data.

    python benchmarks/collector_log.py [--tokens 1000000] [--calls 60]

One call hands over three float32 tensors of the given number of tokens. Everything is written to a temporary folder and
then deleted. Between two calls the writer is given time to finish, as training would; `--no-pause` leaves it none.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector
from ratioscope.collectors.writing.sink import RowsOutcome

NAMES = ("rollout_logprobs", "old_logprobs", "current_logprobs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--no-pause", action="store_true")
    options = parser.parse_args()
    arrays = logprobs(options.tokens)
    with tempfile.TemporaryDirectory() as folder:
        ours = collector_seconds(Path(folder) / "run", arrays, options.calls, pause=not options.no_pause)
        others = {"log, writer held up": blocked_seconds(Path(folder) / "held", arrays, options.calls)}
        others |= {name: seconds(partial(save, Path(folder), arrays), 5) for name, save in OTHERS.items()}
    print(f"{options.tokens:,} tokens x 3 float32 tensors, {options.calls} calls")
    median = float(np.median(ours))
    report("Collector.log", ours, median)
    for name, taken in others.items():
        report(name, taken, median)


def logprobs(tokens: int, sequence: int = 1000) -> dict[str, Any]:
    """Three policies' log-probs, (B, T)."""
    random = np.random.default_rng(0)
    rollout = -random.exponential(size=(max(1, tokens // sequence), min(tokens, sequence))).astype(np.float32)
    return {name: rollout + random.normal(0, 0.03, rollout.shape).astype(np.float32) for name in NAMES}


def collector_seconds(run: Path, arrays: dict[str, Any], calls: int, *, pause: bool) -> list[float]:
    """Seconds of each call; the first few, in which the buffers are made, are left out."""
    taken = []
    with Collector(run) as collector:
        for step in range(calls + 3):
            began = time.perf_counter()
            collector.log(step=step, **arrays)
            taken.append(time.perf_counter() - began)
            if pause:
                collector.flush()
        writing = time.perf_counter()
        collector.flush()
        print(f"waited {time.perf_counter() - writing:.2f} s for the writer at the end; {collector.counts.sequences}")
    size = sum(path.stat().st_size for path in run.rglob("*.parquet") if "tokens" in path.parts)
    print(f"{size / (calls + 3) / arrays[NAMES[0]].size:.2f} bytes per token on disk")
    return taken[3:]


def blocked_seconds(run: Path, arrays: dict[str, Any], calls: int) -> list[float]:
    """Seconds of each call while the writer hangs in its first write: some are taken into the queue, the rest refused."""
    gate, taken = threading.Event(), []
    with Collector(run, queue_batches=8, sink=lambda: _HeldUp(gate)) as collector:
        for step in range(calls + 3):
            began = time.perf_counter()
            collector.log(step=step, **arrays)
            taken.append(time.perf_counter() - began)
        refused = collector.counts.reasons.get("queue full", 0)
        gate.set()
    print(f"held up: {refused} of {collector.counts.sequences.offered} sequences refused, none lost uncounted")
    return taken[3:]


class _HeldUp:
    """A sink whose disk hangs until the gate opens."""

    def __init__(self, gate: threading.Event) -> None:
        self._gate = gate

    def open(self) -> int:
        return 0

    def write(self, step: int, rows: Any, earlier: Any, tally: Any, late: str | None) -> RowsOutcome:
        self._gate.wait()
        return RowsOutcome(len(rows), 0)

    def say(self, entry: Any) -> None:
        self._gate.wait()


def seconds(save: Callable[[], object], calls: int) -> list[float]:
    """Seconds of each call."""
    taken = []
    for _ in range(calls):
        began = time.perf_counter()
        save()
        taken.append(time.perf_counter() - began)
    return taken


def report(name: str, taken: list[float], unit: float) -> None:
    """One line: median, 99th percentile, and how many times our median that is."""
    median, high = np.quantile(taken, [0.5, 0.99])
    print(f"{name:<28} p50 {median * 1e3:10.3f} ms   p99 {high * 1e3:10.3f} ms   {median / unit:10.1f} x Collector.log")


def numpy_save(folder: Path, arrays: dict[str, Any]) -> None:
    np.savez(folder / "step.npz", **arrays)


def torch_save(folder: Path, arrays: dict[str, Any]) -> None:
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / "step.pt")


def json_dump(folder: Path, arrays: dict[str, Any]) -> None:
    with open(folder / "step.json", "w") as file:
        json.dump({name: array.tolist() for name, array in arrays.items()}, file)


OTHERS = {"np.savez": numpy_save, "torch.save": torch_save, "json.dump of lists": json_dump}

if __name__ == "__main__":
    main()
