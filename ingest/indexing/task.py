"""A task of `ratioscope index`: statistics of a step, or effects of corrections on it, by the functions of the local path.

Engines carry out tasks, each in its own way; this file has what they share.
"""

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.layout import RUN_FILE
from ratioscope.metrics.engines.choice_of_loops import WORTH_COMPILING, loops_for
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.version import __version__

from ..commits.entries import TokenFile
from ..files.cache import Cache
from ..files.parquet_files import ParquetFiles
from ..files.quarantine import CountedSetAside
from ..jobs.correction_results import AnyCorrection, effects
from ..rows.record_rows import RecordRows
from ..rows.slices import slice_named
from ..statistics.kept_tables import definitions
from ..statistics.row_statistics import RowStatistics


@lru_cache(maxsize=1)
def _own_definitions() -> str:
    return f"{__version__} {definitions()[:16]}"


@dataclass(frozen=True)
class IndexTask:
    """The statistics of one step, for all written slices or for one on demand."""

    root: str
    """Path of the run, the same on every machine."""
    name: str
    """Cache key of the result; for corrections, the digest of the rows."""
    step: int
    files: tuple[TokenFile, ...]
    """The step's token files, as the commit logs name them. No folder is listed."""
    slice: str
    """Name of a slice; a written one stands for all written slices."""
    definitions: str = field(default_factory=_own_definitions)
    """The version and definitions of metrics by which the step has to be computed."""
    corrections: tuple[AnyCorrection, ...] = ()
    """If there are any, the result is the effect of each on the step, and no statistics."""
    loops: str = NUMPY_LOOPS.name
    """Name of the caller's loops of the engine. A process that lacks them computes the same bits with numpy's."""


@dataclass(frozen=True)
class TaskResult:
    """The result of a task."""

    table: bytes
    """The statistics or effects, as an Arrow stream."""
    refused: tuple[tuple[str, str], ...]
    """(path, reason) of files that could not be read. Their rows are not in the statistics."""


def carried_out(task: IndexTask) -> TaskResult:
    """The result. SourceError where this process cannot see the run, or has other definitions of metrics."""
    if task.definitions != _own_definitions():
        raise SourceError(
            f"{socket.gethostname()} has ratioscope {_own_definitions()}, the caller {task.definitions}: install the same one"
        )
    if not (Path(task.root) / RUN_FILE).is_file():
        raise SourceError(f"{socket.gethostname()} sees no run at {task.root}: put it where every machine sees it")
    refused: list[tuple[str, str]] = []
    aside = CountedSetAside(lambda path, reason: refused.append((path, reason)))
    rows = RecordRows(_files(task.root), aside)
    if task.corrections:
        table = effects(joined(rows.table(task.files)), task.corrections, task.step, task.name)
    else:
        statistics = RowStatistics(rows, Cache(None), aside)
        table = statistics.step(task.step, task.files, slice_named(task.slice), loops=_loops(task))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return TaskResult(sink.getvalue().to_pybytes(), tuple(refused))


def _loops(task: IndexTask) -> Loops:
    return NUMPY_LOOPS if task.loops == NUMPY_LOOPS.name else loops_for(WORTH_COMPILING)


def table_of(result: TaskResult) -> pa.Table:
    """The statistics of a result."""
    with pa.ipc.open_stream(result.table) as reader:
        return reader.read_all()


@lru_cache(maxsize=1)
def _files(root: str) -> ParquetFiles:
    return ParquetFiles(Path(root))


@dataclass(frozen=True)
class TaskOutcome:
    """The end of one attempt at a task."""

    task: IndexTask
    result: TaskResult | None
    """None where the attempt failed."""
    failure: str = ""
    """Why it failed."""


class Engine(Protocol):
    """Carries out tasks somewhere else, some at a time."""

    @property
    def capacity(self) -> int:
        """Tasks that may be under way at a time. It bounds memory: each of them holds the rows of a step."""
        ...

    def start(self, task: IndexTask) -> None:
        """Starts a task, while fewer than `capacity` are under way."""

    def ended(self) -> Iterable[TaskOutcome]:
        """Waits until a task has ended, and returns those that have."""
        ...

    def close(self) -> None:
        """Ends everything that is under way."""


def outcomes(engine: Engine, tasks: deque[IndexTask]) -> Iterator[TaskOutcome]:
    """The outcome of each attempt, as they end. The caller may add to `tasks` meanwhile, such as one that is tried again."""
    under_way = 0
    while tasks or under_way:
        while tasks and under_way < engine.capacity:
            engine.start(tasks.popleft())
            under_way += 1
        for outcome in engine.ended():
            under_way -= 1
            yield outcome
