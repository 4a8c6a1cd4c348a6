"""Runs that have token rows and no statistics, and what `index` and a reader keep of them in the cache."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope import open_run
from ratioscope.ingest.indexing.engine import Engine
from ratioscope.ingest.indexing.index import Indexed, index

from . import real_runs, run_folders
from .run_folders import FakeWriter, few

STEP = few(real_runs.records("trl_vllm_stale4"), 1, 3)
SLICES = ("token_id",)


def at(step: int, seed: int = 0) -> pa.Table:
    """The rows of a step, whose numbers are its own."""
    draws = np.random.default_rng((step, seed))
    rows = run_folders.replaced(STEP, "step", pa.array([step] * len(STEP)))
    column: Any = STEP["old_logprobs"].combine_chunks()
    values = column.values.to_numpy() + draws.normal(0, 0.1, len(column.values)).astype(np.float32)
    return run_folders.replaced(rows, "old_logprobs", pa.ListArray.from_arrays(column.offsets, pa.array(values)))


def without_statistics(root: Path, steps: range, attempt: int = 0) -> FakeWriter:
    began = run_folders.TIME + 1000 * attempt + steps.start
    writer = FakeWriter(root, f"r00000-host-{attempt}-abcdef", attempt=attempt, clock=began).open()
    for step in steps:
        writer.step(at(step, attempt), with_statistics=False)
    return writer.close()


def ten_steps(folder: Path) -> Path:
    """Ten steps; from step 7 on, a later start recorded them again."""
    without_statistics(folder, range(8))
    without_statistics(folder, range(7, 10), attempt=1)
    return folder


def caches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """A function that makes the user's cache one of this name, and returns its folder."""

    def chosen(name: str) -> Path:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / name))
        return tmp_path / name

    return chosen


def contents(cache: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in cache.rglob("*.parquet")}


def alone(run: Path, cache: Path) -> dict[str, bytes]:
    """The tables of a reader that computes all of it itself."""
    found = open_run(run)
    found.metrics()
    for name in SLICES:
        found.metrics((name,))
    return contents(cache)


def indexed(run: Path, engine: Engine, **options: object) -> Indexed:
    with closing(engine):
        return index(open_run(run), engine, SLICES, **options)  # type: ignore[arg-type]


def holds(cache: Path, expected: dict[str, bytes]) -> bool:
    """True if the cache has these tables; of blocks that may grow it has those of their steps, too."""
    found = contents(cache)
    return len(expected) == 3 * (1 + len(SLICES)) and expected.items() <= found.items()
