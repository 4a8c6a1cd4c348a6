"""`log` and bytes on disk beside packages that need a row per token, or keep less than the tokens."""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope import Collector

from .measured import Row, Table, told_in_turns
from .workers import Answer, Worker, calls, told_missing

SEQUENCE = 1000
MILLISECOND = 1e-3
TABLES = {"wandb.Table, offline": "wandb_table", "trackio.Table": "trackio_table", "martingale": "martingale"}
"""These keep every token."""
OTHERS = {"JSON lines": "json_lines", "rlprobe, four numbers": "rlprobe"}


def parts(quick: bool) -> Iterator[Table]:
    yield beside_packages(2 if quick else 20, 2 if quick else 7)


def beside_packages(sequences: int, rounds: int) -> Table:
    """One call for token ids and two policies, beside packages that need a row per token or keep less."""
    draws = np.random.default_rng(0)
    shape = sequences, SEQUENCE
    rollout = -draws.exponential(size=shape).astype(np.float32)
    arrays: dict[str, Any] = {
        "rollout_logprobs": rollout,
        "old_logprobs": rollout + draws.normal(0, 0.03, shape).astype(np.float32),
    }
    arrays["token_ids"] = draws.integers(0, 32_000, shape)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        rows = pa.table({"step": [0] * sequences, **{name: list(array) for name, array in arrays.items()}})
        pq.write_table(rows, Path(folder) / "rows.parquet")
        collector = stack.enter_context(Collector(Path(folder) / "run"))
        workers = token_workers(stack, Path(folder), Path(folder) / "rows.parquet", TABLES | OTHERS)
        steps = iter(range(1 << 30))

        def logged() -> float:
            began = time.perf_counter()
            collector.log(step=next(steps), **arrays)
            took = time.perf_counter() - began
            collector.flush()
            return took / MILLISECOND

        others = {name: _wall(call) for name, call in calls(workers, "log").items()}
        found = told_in_turns({"Collector.log": logged, **others}, rounds)
    text = (
        f"One step of {sequences * SEQUENCE:,} tokens: ids and two policies, in sequences of {SEQUENCE:,}. The thread that calls "
        "waits this long. ratioscope takes arrays. The others take a row per token, which the call makes of lists; "
        "rlprobe keeps no token: it gets four numbers of the step, which the call works out. "
        "Each ran in a process of its own, in turns."
    )
    return Table(
        "log_packages",
        "One call of log beside other packages",
        text,
        "ms",
        "Collector.log",
        found,
        told_missing(workers),
    )


def token_workers(stack: ExitStack, folder: Path, rows: Path, packages: Mapping[str, str]) -> dict[str, Worker]:
    """A process for each package, which has the rows."""
    found = {}
    for name, function in packages.items():
        (folder / function).mkdir()
        given = {"folder": str(folder / function), "rows": str(rows)}
        found[name] = stack.enter_context(Worker(f"tokens:{function}", given))
    return found


def bytes_of(rows: pa.Table, tokens: int) -> tuple[tuple[Row, ...], tuple[str, ...]]:
    """(bytes per token of the packages that keep every token, a sentence for each that cannot run)."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        pq.write_table(rows, Path(folder) / "rows.parquet")
        workers = token_workers(stack, Path(folder), Path(folder) / "rows.parquet", TABLES)
        sizes = {name: call().value or 0.0 for name, call in calls(workers, "bytes").items()}
        return tuple(Row(name, (size / tokens,)) for name, size in sizes.items()), told_missing(workers)


def _wall(call: Callable[[], Answer]) -> Callable[[], float]:
    return lambda: call().wall / MILLISECOND
