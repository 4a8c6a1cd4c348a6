"""The cost of a full index of a run beside the bare scan of the columns that it reads, for each kind of the engine's loops.

    python benchmarks/index.py [--tokens 2000000] [--steps 4] [--repeats 7]

A real Collector records the run. Scan: pyarrow reads the log-probs of the same files. Index: the function that every process of
`ratioscope index` runs for a step, from the file to all statistics, written slices and distributions. Loops alone: the same calls
of the engine's loops with the same tokens once more, without reading and without all that numpy and Python do around them. Floor:
other engines compute the mean of exp(x) - 1 - x by step, one number of several hundred. The times are processor seconds of one
thread each, in turns, so that the ratios hold on a busy machine too; the median ratio stands beside its quartiles. Packages that
are not installed are left out.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Collector, layout
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.indexing.slice_plan import SlicePlan
from ratioscope.ingest.indexing.task import IndexTask, carried_out
from ratioscope.ingest.run import Run
from ratioscope.metrics.engines.choice_of_loops import WORTH_COMPILING, loops_for, machine_loops
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import GAPS

POLICIES = ("rollout", "old", "current")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--steps", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=7)
    options = parser.parse_args()
    pa.set_cpu_count(1)
    pl_threads = pl.thread_pool_size()
    print(f"polars {pl.__version__} has {pl_threads} threads, all others one; processor seconds count all threads")
    for policies in (POLICIES[:2], POLICIES):
        with tempfile.TemporaryDirectory() as folder:
            tokens = recorded(Path(folder) / "run", policies, options.tokens, options.steps)
            report(Path(folder) / "run", policies, tokens, options.repeats)


def recorded(run: Path, policies: tuple[str, ...], tokens: int, steps: int) -> int:
    """Records steps of log-normal lengths around a thousand tokens; returns the number of tokens."""
    random, done = np.random.default_rng(0), 0
    with Collector(run) as collector:
        for step in range(steps):
            lengths = np.clip(random.lognormal(6.6, 0.8, tokens // steps // 1000), 1, 8000).astype(int)
            sure = [random.random(length) < 0.5 for length in lengths]
            rollout = [-random.exponential(size=len(s)) * np.where(s, 1e-3, 1.0) for s in sure]
            columns: dict[str, Any] = {
                f"{policy}_logprobs": [x.astype(np.float32) if not i else drifted(x, random) for x in rollout]
                for i, policy in enumerate(policies)
            }
            collector.log(step=step, **columns)
            done += int(lengths.sum())
    for path in (run / layout.STATISTICS).rglob("*.*"):
        path.unlink()  # a run whose statistics were lost has all of them computed from rows
    return done


def drifted(logprobs: Any, random: np.random.Generator) -> Any:
    """The log-probs of another policy, close to these where they are close to 0."""
    return np.minimum(logprobs + 0.05 * random.normal(size=len(logprobs)) * -np.expm1(logprobs), 0).astype(np.float32)


def report(run: Path, policies: tuple[str, ...], tokens: int, repeats: int) -> None:
    """One line per way, in nanoseconds a token and as a ratio to the scan of the same round."""
    files = sorted(map(str, (run / "tokens").rglob("*.parquet")))
    names = [f"{policy}_logprobs" for policy in policies]
    ways: dict[str, Callable[[], object]] = {"scan": lambda: [pq.read_table(f, columns=names) for f in files]}
    tasks = list(SlicePlan.of(Run(run, Cache(None)), "all").tasks())
    ways |= {f"index, {name}": partial(index, tasks, own) for name, own in loops()}
    if (compiled := machine_loops()) is not None:
        ways["loops alone, machine code"] = loops_alone(files, compiled)
    ways |= {name: partial(way, files) for name, way in floors()}
    for way in ways.values():
        way()
    taken = {name: np.array([]) for name in ways}
    for _ in range(repeats):
        for name, way in ways.items():
            began = time.process_time()
            way()
            taken[name] = np.append(taken[name], time.process_time() - began)
    print(f"\n{tokens:,} tokens, {len(policies)} policies, {sum(set(GAPS[g]) <= set(policies) for g in GAPS)} gaps")
    for name, seconds in taken.items():
        low, middle, high = np.quantile(seconds / taken["scan"], [0.25, 0.5, 0.75])
        print(
            f"{name:<24} {np.median(seconds) / tokens * 1e9:8.1f} ns/token {middle:8.1f} x scan ({low:.1f} to {high:.1f})"
        )


def index(tasks: Sequence[IndexTask], loops: str) -> None:
    """Carries out the task of every step, as a process of `ratioscope index` does."""
    for task in tasks:
        assert not carried_out(replace(task, loops=loops)).refused


def loops_alone(files: list[str], loops: Loops) -> Callable[[], object]:
    """Carries out once more each call of the loops that the statistics of these files need."""
    calls = list[Callable[[], object]]()

    def noted(function: Callable[..., Any]) -> Callable[..., Any]:
        def of(*given: Any) -> Any:
            calls.append(partial(function, *given))
            return function(*given)

        return of

    own = replace(loops, sums=noted(loops.sums), buckets=noted(loops.buckets))
    for file in files:
        statistics(pq.read_table(file), loops=own)
    return lambda: [call() for call in calls]


def loops() -> Iterator[tuple[str, str]]:
    """(name, the engine's name of these loops)."""
    yield "numpy", NUMPY_LOOPS.name
    if find_spec("llvmlite") is not None:
        yield "machine code", loops_for(WORTH_COMPILING).name


def floors() -> Iterator[tuple[str, Callable[[list[str]], object]]]:
    """Other engines that compute kl_k3 of mismatch by step."""
    yield "kl_k3 alone, polars", polars_k3
    if find_spec("duckdb") is not None:
        yield "kl_k3 alone, DuckDB", duckdb_k3


def polars_k3(files: list[str]) -> object:
    x = pl.col("old_logprobs").explode().cast(pl.Float64) - pl.col("rollout_logprobs").explode().cast(pl.Float64)
    return pl.concat([pl.scan_parquet(f).select(((x.exp() - 1) - x).mean()) for f in files]).collect()


def duckdb_k3(files: list[str]) -> object:
    duckdb = import_module("duckdb")
    return duckdb.execute(
        "set threads=1; select step, avg(exp(x) - 1 - x) from (select step, unnest(old_logprobs)::double - "
        "unnest(rollout_logprobs)::double as x from read_parquet($1)) group by step",
        [files],
    ).fetchall()


if __name__ == "__main__":
    main()
