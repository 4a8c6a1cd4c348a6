"""The plan for corrections: which steps lack an effect. Each step is read once for all of them."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Self

import polars as pl
import pyarrow as pa

from ..jobs.correction_results import AnyCorrection, CorrectionResults
from ..jobs.step_ledger import Digests
from ..run import Run
from ..statistics.row_statistics import FilesByStep, RowStatistics
from .task import IndexTask

SLICE = "token_id"
"""A slice that is always computed from rows: its work names the files of every step."""
SAVE_EVERY = 2.0
"""The most seconds of work that a killed process loses."""


@dataclass
class CorrectionPlan:
    """The work that the effects of some corrections need, by the commit logs of now."""

    run: Run
    rows: RowStatistics
    files: FilesByStep
    digests: Digests
    results: tuple[CorrectionResults, ...]
    missing: dict[int, tuple[CorrectionResults, ...]]
    """Step -> the results that lack it."""
    _aside: int
    """Files that had been set aside when the plan was made."""
    _saved: float = field(default_factory=time.monotonic)
    """When results were last written, on a clock that never goes back."""

    @classmethod
    def of(cls, run: Run, corrections: Sequence[AnyCorrection]) -> Self:
        """The plan for these corrections."""
        work = run.row_work(SLICE)
        digests = run.row_digests()
        results = tuple(CorrectionResults(correction, work.rows.cache) for correction in corrections)
        lacking = {each: frozenset(each.missing(digests, digests)) for each in results}
        steps = sorted(frozenset[int]().union(*lacking.values()))
        missing = {step: tuple(each for each in results if step in lacking[each]) for step in steps}
        return cls(run, work.rows, work.steps[0], digests, results, missing, work.rows.aside.times)

    @property
    def steps(self) -> int:
        """Steps in all, also those that lack nothing."""
        return len(self.digests)

    @property
    def is_outdated(self) -> bool:
        """True if a file was set aside since the plan was made."""
        return self.rows.aside.times > self._aside

    def tasks(self) -> Iterator[IndexTask]:
        """A task for each step that lacks an effect."""
        root = str(self.run.path.resolve())
        for step, results in self.missing.items():
            corrections = tuple(each.correction for each in results)
            yield IndexTask(
                root, self.digests[step], step, tuple(self.files[step]), "corrections", corrections=corrections
            )

    def keep(self, task: IndexTask, table: pa.Table) -> None:
        """Takes the effects on a step: a row for each correction of its task."""
        frame = pl.DataFrame(table)
        for place, results in enumerate(self.missing[task.step]):
            results.ledger.add(frame[place])
        if time.monotonic() - self._saved > SAVE_EVERY:
            self.save()

    def save(self) -> None:
        """Writes what is in memory alone to the cache."""
        for each in self.results:
            each.save(self.digests)
        self._saved = time.monotonic()

    def is_sound(self, task: IndexTask, path: str) -> bool:
        """True if this process can read the file. A file that it cannot read is set aside."""
        before = self.rows.aside.times
        self.rows.rows.table([file for file in task.files if file.path == path])
        return self.rows.aside.times == before

    def lost(self) -> int:
        """Steps of a block that is not in the cache, although effects on them are known."""
        blocks = [block for each in self.results for block in each.ledger.blocks(self.digests).items()]
        return len({step for key, steps in blocks if not self.rows.cache.holds(key) for step in steps})
