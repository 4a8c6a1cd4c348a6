"""Runs that have token rows and no statistics, and what `index` and a reader keep of them in the cache."""

import threading
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ratioscope import open_run
from ratioscope.app.cli.commands.corrections import of_trainer
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.indexing.index import Indexed, index
from ratioscope.ingest.indexing.task import Engine, IndexTask, TaskOutcome, TaskResult, carried_out
from ratioscope.ingest.jobs.correction_results import AnyCorrection, CorrectionResults, correction_job
from ratioscope.metrics.corrections.correction import CORRECTIONS

from . import real_runs, run_folders
from .run_folders import FakeWriter, few

STEP = few(real_runs.records("trl_vllm_stale4"), 1, 3)
SLICES = ("token_id",)
CHOSEN: tuple[AnyCorrection, ...] = (*CORRECTIONS[:2], *of_trainer("trl", (), None)[:1])
"""Corrections of ours, and one of a trainer."""


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


def alone_corrected(run: Path, cache: Path) -> dict[str, bytes]:
    """The results of CHOSEN that the job of the page Fix keeps."""
    cache.mkdir()
    opened = open_run(run)
    ledgers = [CorrectionResults(each, Cache(cache)) for each in CHOSEN]
    job = correction_job(opened, ledgers, opened.steps, threading.Lock())
    job.start()
    assert job.wait(300).state == "done"
    return contents(cache)


def indexed(run: Path, engine: Engine, **options: object) -> Indexed:
    with closing(engine):
        return index(open_run(run), engine, SLICES, **options)  # type: ignore[arg-type]


def holds(cache: Path, expected: dict[str, bytes]) -> bool:
    """True if the cache has these tables; of blocks that may grow it has those of their steps, too."""
    found = contents(cache)
    return len(expected) == 3 * (1 + len(SLICES)) and expected.items() <= found.items()


class Here:
    """An engine that carries out each task in this process. meanwhile: what else happens to a task."""

    capacity = 2

    def __init__(
        self,
        meanwhile: Callable[[IndexTask, TaskResult], TaskResult | str] = lambda task, result: result,
        *,
        place: int = 0,
    ) -> None:
        """place: of the task that ends first; -1: the newest."""
        self.place, self.meanwhile, self.waiting, self.steps = place, meanwhile, list[IndexTask](), list[int]()

    def start(self, task: IndexTask) -> None:
        self.waiting.append(task)

    def ended(self) -> Iterable[TaskOutcome]:
        task = self.waiting.pop(self.place)
        self.steps.append(task.step)
        answer = self.meanwhile(task, carried_out(task))
        return [TaskOutcome(task, None, answer) if isinstance(answer, str) else TaskOutcome(task, answer)]

    def close(self) -> None:
        self.waiting = []
