"""The plan of an index: which steps the cache lacks, and the blocks that they belong to."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.choice_of_loops import loops_for

from ..run import Run
from ..statistics.row_statistics import CachedSteps, RowWork
from .task import IndexTask

SAVE_EVERY = 2.0
"""Seconds of work that are lost at most when the process is killed. Each of many small steps is not worth a file of its own."""


@dataclass
class SlicePlan:
    """The work that one slice of a run needs, by the commit logs of now."""

    work: RowWork
    root: str
    """The folder of the run."""
    slice: str
    blocks: list[CachedSteps]
    """The steps, in the blocks that the cache keeps."""
    lacking: dict[str, set[str]]
    """Key of a block that is not in the cache -> names of its steps that are not there either."""
    _by_name: dict[str, list[CachedSteps]] = field(default_factory=dict)
    """Name of a step -> the blocks it is in."""
    _aside: int = 0
    """Files that had been set aside when the plan was made."""
    _held: dict[str, pa.Table] = field(default_factory=dict)
    """Name of a step -> its table, until it is in the cache, alone or with its block."""
    _saved: float = field(default_factory=time.monotonic)
    """When tables were last written, on a clock that never goes back."""

    @classmethod
    def of(cls, run: Run, slice_name: str) -> "SlicePlan":
        """The plan for a slice on demand, or for all written slices. Blocks with all their steps are put together at once."""
        work = run.row_work(slice_name)
        blocks, rows = work.blocks(), work.rows
        lacking = {
            block.key: {name for name in block.names.values() if rows.kept(name) is None}
            for block in blocks
            if rows.kept(block.key) is None
        }
        plan = cls(work, str(run.path.resolve()), slice_name, blocks, lacking, _aside=rows.aside.times)
        for block in blocks:
            if block.key in lacking:
                for name in block.names.values():
                    plan._by_name.setdefault(name, []).append(block)
                plan._assemble(block)
        return plan

    @property
    def steps(self) -> int:
        """Steps in all, also those in the cache."""
        return len({name for block in self.blocks for name in block.names.values()})

    @property
    def is_outdated(self) -> bool:
        """True if a file was set aside since the plan was made."""
        return self.work.rows.aside.times > self._aside

    def tasks(self) -> Iterator[IndexTask]:
        """A task for each step that is lacking, in the order of blocks."""
        named = set[str]()
        for block in self.blocks:
            loops = loops_for(block.work).name
            for step, name in block.names.items():
                if name in self.lacking.get(block.key, ()) and name not in named:
                    named.add(name)
                    yield IndexTask(self.root, name, step, tuple(block.steps[step]), self.slice, loops=loops)

    def keep(self, task: IndexTask, table: pa.Table) -> None:
        """Takes the statistics of a step. SourceError where the cache cannot keep them."""
        self._held[task.name] = table
        for block in self._by_name[task.name]:
            self.lacking[block.key].discard(task.name)
            self._assemble(block)
        if time.monotonic() - self._saved > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Writes what is in memory alone to the cache."""
        for name, table in self._held.items():
            self.work.rows.cache.store(name, table)
            self._demand(name)
        self._held, self._saved = {}, time.monotonic()

    def is_sound(self, task: IndexTask, path: str) -> bool:
        """True if this process can read the file. A file that it cannot read is set aside."""
        rows, file = self.work.rows, next(file for file in task.files if file.path == path)
        before = rows.aside.times
        rows.rows.table([file])
        return rows.aside.times == before

    def lost(self) -> int:
        """Steps of blocks that had all their steps, and are not in the cache."""
        holds = self.work.rows.cache.holds
        return sum(
            len(block.names) for block in self.blocks if not self.lacking.get(block.key) and not holds(block.key)
        )

    def _assemble(self, block: CachedSteps) -> None:
        if self.lacking[block.key]:
            return
        self.work.assemble(block, self._held)
        self._demand(block.key)
        if block.is_full:
            self._held = {name: table for name, table in self._held.items() if name not in block.names.values()}

    def _demand(self, key: str) -> None:
        cache = self.work.rows.cache
        if not cache.holds(key) and not self.is_outdated:
            raise SourceError(cache.advice)
