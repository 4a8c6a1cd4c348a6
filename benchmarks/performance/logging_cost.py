"""The cost of one call of `log` to the trainer's thread, beside a copy of the same bytes and other ways to keep them."""

import pickle
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import Collector

from .measured import Growth, Line, Row, Table, in_turns

POLICIES = ("rollout_logprobs", "old_logprobs", "current_logprobs")
SEQUENCE = 1000
MILLISECOND = 1e-3
Arrays = dict[str, Any]


def log_probs(tokens: int) -> Arrays:
    """Three policies' log-probs, (B, T) float32."""
    draws = np.random.default_rng(0)
    shape = max(1, tokens // SEQUENCE), min(tokens, SEQUENCE)
    rollout = -draws.exponential(size=shape).astype(np.float32)
    return {name: rollout + draws.normal(0, 0.03, shape).astype(np.float32) for name in POLICIES}


def parts(quick: bool) -> Iterator[Table | Growth]:
    yield beside_others(100_000 if quick else 1_000_000, 3 if quick else 15)
    yield busy_writer(100_000 if quick else 1_000_000, 10 if quick else 40)
    yield along_tokens((1e3, 1e4, 1e5) if quick else (1e3, 1e4, 1e5, 1e6, 3e6), 3 if quick else 9)


def beside_others(tokens: int, rounds: int) -> Table:
    arrays = log_probs(tokens)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        collector = stack.enter_context(Collector(Path(folder) / "run"))
        works = {COPY: partial(copied, arrays), "Collector.log": logging_to(collector, arrays)}
        works |= {name: partial(keep, Path(folder), arrays) for name, keep in KEEPING.items()}
        rows = with_rests(works, rounds, collector)
    text = (
        f"One step of {tokens:,} tokens of three policies, float32. The thread that calls waits this long. Every way of "
        "keeping them wrote to the same disk, in turns; the writer of ratioscope had ended its work before each turn."
    )
    return Table("log", "One call of log", text, "ms", COPY, rows)


def busy_writer(tokens: int, calls: int) -> Table:
    """The same call while the writer still works on the step before."""
    arrays = log_probs(tokens)
    with tempfile.TemporaryDirectory() as folder, Collector(Path(folder) / "run", queue_batches=calls + 8) as collector:
        call = logging_to(collector, arrays)
        rows = in_turns({COPY: partial(copied, arrays), "log, the writer at work": call}, calls, unit=MILLISECOND)
        collector.flush()
    text = (
        f"{calls} steps of {tokens:,} tokens, logged as fast as the thread can, so that the writer's process works all the time "
        "and shares the memory and the cores with the thread."
    )
    return Table("log_busy", "Log while the writer works", text, "ms", COPY, rows)


def along_tokens(sizes: tuple[float, ...], rounds: int) -> Growth:
    lines: dict[str, list[tuple[float, ...]]] = {COPY: [], "Collector.log": []}
    for tokens in sizes:
        arrays = log_probs(int(tokens))
        with tempfile.TemporaryDirectory() as folder, Collector(Path(folder) / "run") as collector:
            works = {COPY: partial(copied, arrays), "Collector.log": logging_to(collector, arrays)}
            for row in with_rests(works, rounds, collector):
                lines[row.name].append(row.values)
    text = "The thread that calls log waits this long, for steps of different size."
    drawn = tuple(Line(name, sizes, tuple(values)) for name, values in lines.items())
    return Growth("log_tokens", "Log along the tokens of a step", text, "ms", "tokens of a step", drawn)


COPY = "a copy of the same bytes"


def with_rests(works: dict[str, Callable[[], object]], rounds: int, *collectors: Collector) -> tuple[Row, ...]:
    """In turns, and the writers end their work before each turn; that does not count."""
    away = 0.0

    def clock() -> float:
        return time.perf_counter() - away

    def rested(work: Callable[[], object]) -> None:
        nonlocal away
        began = time.perf_counter()
        for collector in collectors:
            collector.flush(timeout=None)
        away += time.perf_counter() - began
        work()

    return in_turns({name: partial(rested, work) for name, work in works.items()}, rounds, clock, MILLISECOND)


def logging_to(collector: Collector, arrays: Arrays) -> Callable[[], object]:
    """Logs the arrays as the next step at each call."""
    steps = iter(range(1 << 30))
    return lambda: collector.log(step=next(steps), **arrays)


def copied(arrays: Arrays) -> object:
    """The same arrays in memory of their own."""
    return [array.copy() for array in arrays.values()]


def _numpy(folder: Path, arrays: Arrays) -> None:
    np.savez(folder / "step.npz", **arrays)  # type: ignore[arg-type]


def _torch(folder: Path, arrays: Arrays) -> None:
    import torch

    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, folder / "step.pt")


def _pickled(folder: Path, arrays: Arrays) -> None:
    (folder / "step.pkl").write_bytes(pickle.dumps(arrays, protocol=5))


def _pandas(folder: Path, arrays: Arrays) -> None:
    import pandas as pd

    pd.DataFrame({name: array.ravel() for name, array in arrays.items()}).to_parquet(folder / "step.parquet")


KEEPING = {
    "np.savez": _numpy,
    "torch.save": _torch,
    "pickle.dump": _pickled,
    "pandas.to_parquet": _pandas,
}
