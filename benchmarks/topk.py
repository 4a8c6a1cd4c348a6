"""The cost of top-k: `Collector.log` with the likeliest tokens of both sides beside the call without them, and reading them back.

    python benchmarks/topk.py [--tokens 1000000] [--topk 20] [--calls 5]

One call hands over two float32 log-probs of each token, and with top-k an int32 id and two float32 log-probs of each alternative.
Log-probs fall from one alternative to the next, both sides differ by bfloat16-like noise, and ids are any of a vocabulary.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Budget, Collector, open_run
from ratioscope.ingest.analysis.support import support_pieces
from ratioscope.layout import TOKENS, TOPK

LENGTH = 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--topk", type=int, default=20)
    parser.add_argument("--calls", type=int, default=5)
    options = parser.parse_args()
    size = max(1, options.tokens // LENGTH), LENGTH
    given = {"without top-k": arrays(size, 0), f"with top-{options.topk}": arrays(size, options.topk)}
    with tempfile.TemporaryDirectory() as folder:
        for name, each in given.items():
            measure(name, Path(folder) / name, each, options.calls)


def arrays(size: tuple[int, int], topk: int) -> dict[str, Any]:
    """The arguments of a call."""
    random = np.random.default_rng(0)
    base = -random.exponential(0.6, size).astype(np.float32)
    made: dict[str, Any] = {f"{side}_logprobs": noisy(base, random) for side in ("rollout", "old")}
    made["token_ids"] = random.zipf(1.3, size).clip(max=150_000).astype(np.int32)
    if topk:
        shape = (*size, topk)
        falling = -np.cumsum(random.exponential(0.6, shape).astype(np.float32), axis=2)
        made |= {f"{side}_topk_logprobs": noisy(falling, random) for side in ("rollout", "old")}
        made["topk_ids"] = np.cumsum(random.integers(1, 150_000 // topk, shape), axis=2).astype(np.int32)
    return made


def noisy(values: Any, random: np.random.Generator) -> Any:
    """The values with the noise of another computation, none above 0."""
    return np.minimum(values + random.normal(0, 0.02, values.shape), 0).astype(np.float32)


def measure(name: str, run: Path, given: dict[str, Any], calls: int) -> None:
    """Records calls, reads the support of the last step, and prints what that took."""
    logged, written = list[float](), list[float]()
    budget = Budget(topk_step_bytes=None, topk_run_bytes=None)
    with Collector(run, budget=budget) as collector:
        for step in range(calls + 2):  # the first two make the buffers
            began = time.perf_counter()
            collector.log(step=step, **given)
            called = time.perf_counter()
            collector.flush(timeout=None)
            logged.append(called - began)
            written.append(time.perf_counter() - called)
        assert not collector.counts.failures and not collector.counts.sequences.dropped, collector.counts
    tokens = given["rollout_logprobs"].size
    sizes = [sum(path.stat().st_size for path in (run / part).rglob("*.parquet")) for part in (TOKENS, TOPK)]
    rows, topk = (size / tokens / (calls + 2) for size in sizes)
    began = time.perf_counter()
    read = sum(map(len, support_pieces(open_run(run), calls + 1)))
    took = time.perf_counter() - began
    assert read in (0, tokens)
    medians = [float(np.median(each[2:])) for each in (logged, written)]
    print(
        f"{name:<16} {tokens:,} tokens: log {medians[0] * 1e3:7.1f} ms, written after {medians[1]:5.1f} s, on disk"
        f" {rows:5.1f} + {topk:6.1f} bytes a token, support read in {took:5.1f} s"
    )


if __name__ == "__main__":
    main()
