"""Ways through the token files of a run: a bare scan, the whole index, and others' mean of exp(x) - 1 - x by step.

x is the log-ratio. The integer is of no account. files: token files, one step each.
"""

from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

Works = dict[str, Callable[[int], object]]


def scan(files: Sequence[str], columns: Sequence[str]) -> Works:
    import_module("pyarrow").set_cpu_count(1)
    return {"work": lambda _: [pq.read_table(file, columns=list(columns)) for file in files]}


def index(run: str, compiled: bool) -> Works:
    """The task of every step, as a process of `ratioscope index` does it."""
    if compiled:
        import_module("llvmlite")
    ours, plans = import_module("benchmarks.index"), import_module("ratioscope.ingest.indexing.slice_plan")
    runs, caches = import_module("ratioscope.ingest.run"), import_module("ratioscope.ingest.files.cache")
    tasks = list(plans.SlicePlan.of(runs.Run(Path(run), caches.Cache(None)), "all").tasks())
    loops = dict(ours.loops())["machine code" if compiled else "numpy"]
    return {"work": lambda _: ours.index(tasks, loops)}


def polars(files: Sequence[str]) -> Works:
    pl = import_module("polars")
    x = pl.col("old_logprobs").explode().cast(pl.Float64) - pl.col("rollout_logprobs").explode().cast(pl.Float64)
    return {
        "work": lambda _: pl.concat([pl.scan_parquet(f).select(((x.exp() - 1) - x).mean()) for f in files]).collect()
    }


def duckdb(files: Sequence[str]) -> Works:
    query = import_module("duckdb").execute
    asked = (
        "select step, avg(exp(x) - 1 - x) from (select step, unnest(old_logprobs)::double - "
        "unnest(rollout_logprobs)::double as x from read_parquet($1)) group by step"
    )
    return {"work": lambda _: query(asked, [list(files)]).fetchall()}


def daft(files: Sequence[str]) -> Works:
    daft_, names = import_module("daft"), ("old_logprobs", "rollout_logprobs")

    def k3(_: int) -> object:
        frame = daft_.read_parquet(list(files)).select("step", *names).explode(*map(daft_.col, names))
        x = daft_.col(names[0]).cast(daft_.DataType.float64()) - daft_.col(names[1]).cast(daft_.DataType.float64())
        return frame.select("step", (x.exp() - 1 - x).alias("k3")).groupby("step").mean("k3").collect()

    return {"work": k3}


def verl(files: Sequence[str]) -> Works:
    """All metrics of verl.trainer.ppo.rollout_corr_helper for each step, on padded tensors as its trainer has them."""
    torch, helper = import_module("torch"), import_module("verl.trainer.ppo.rollout_corr_helper")
    torch.set_num_threads(1)
    steps = []
    for file in files:
        table = pq.read_table(file, columns=["old_logprobs", "rollout_logprobs"])
        old, rollout = (_padded(table[name]) for name in ("old_logprobs", "rollout_logprobs"))
        both = (torch.from_numpy(np.nan_to_num(each)) for each in (old, rollout))
        steps.append((*both, torch.from_numpy(~np.isnan(old)).float()))
    return {"work": lambda _: [helper.compute_offpolicy_metrics(*each) for each in steps]}


def _padded(column: object) -> "np.ndarray[tuple[int, int], np.dtype[np.float32]]":
    rows = [np.asarray(row, dtype=np.float32) for row in column.to_pylist()]  # type: ignore[attr-defined]
    padded = np.full((len(rows), max(map(len, rows))), np.nan, dtype=np.float32)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = row
    return padded
