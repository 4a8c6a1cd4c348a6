"""Computes what a run lacks, step by step, and keeps it in the user's cache. A finished step is kept within two seconds.

The plan comes from the commit logs: rows that were replaced, set aside or recorded again by a later start are in no task.
Steps are put together in the order of steps, whatever ended first, so that the result is bit for bit that of a reader that
works alone. The run folder is never written.
The plan for corrections: which steps lack an effect. Each step is read once for all of them.
The frames and histograms that pages of a long run keep in the cache, see statistics/kept_tables.py.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, Self

import polars as pl
import pyarrow as pa

from ratioscope.metrics.distribution import LEVELS
from ratioscope.metrics.engines.slices import WRITTEN

from ..files.progress import OnProgress
from ..jobs.correction_results import AnyCorrection, CorrectionResults
from ..jobs.step_ledger import Digests
from ..run import Run
from ..statistics.row_statistics import FilesByStep, RowStatistics
from .slice_plan import SlicePlan
from .task import Engine, IndexTask, TaskOutcome, outcomes, table_of

ATTEMPTS = 5
"""Times that a step is tried. Each attempt may run in another process, or on another machine."""

SLICE = "token_id"
"""A slice that is always computed from rows: its work names the files of every step."""
SAVE_EVERY = 2.0
"""The most seconds of work that a killed process loses."""


@dataclass
class Indexed:
    """The outcome of `index`. A step counts once for all written slices, once for each slice on demand, and once for all
    corrections."""

    steps: int = 0
    """Steps whose statistics come from token rows."""
    computed: int = 0
    """Those of them that were computed now. All others were in the cache, or failed."""
    tokens: int = 0
    """Tokens in the rows of the computed steps."""
    loops: str = ""
    """The software of the engine's loops here: numpy, or LLVM with its version."""
    seconds: float = 0.0
    """Duration of the whole call."""
    failed: dict[tuple[str, int], str] = field(default_factory=dict)
    """(slice, step) -> why it could not be computed in ATTEMPTS attempts. The slice is `all` for all written ones, and
    `corrections` for these."""
    lost: int = 0
    """Steps that were computed and are not in the cache any more, because it is full."""


class AnyPlan(Protocol):
    """The tasks of one kind that a run lacks, and the place of their results: a SlicePlan or a CorrectionPlan."""

    @property
    def steps(self) -> int: ...

    @property
    def is_outdated(self) -> bool: ...

    def tasks(self) -> Iterable[IndexTask]: ...

    def is_sound(self, task: IndexTask, path: str) -> bool: ...

    def keep(self, task: IndexTask, table: pa.Table) -> None: ...

    def save(self) -> None: ...

    def lost(self) -> int: ...


def index(
    run: Run,
    engine: Engine,
    slices: Sequence[str] = (),
    progress: OnProgress | None = None,
    *,
    corrections: Sequence[AnyCorrection] = (),
) -> Indexed:
    """Computes the statistics that the run lacks: those of written slices, and those of these slices on demand.

    corrections: the effects of these on each step, too. A second call computes only what is left. SourceError where nothing can
    be kept.
    """
    began, done = time.monotonic(), Indexed()
    plans: list[Callable[[], AnyPlan]] = [partial(SlicePlan.of, run, name) for name in ("all", *slices)]
    if corrections:
        plans.append(partial(CorrectionPlan.of, run, corrections))
    for planned in plans:
        while True:
            plan = planned()
            try:
                _carry_out(plan, engine, done, progress)
            finally:
                plan.save()
            if not plan.is_outdated:
                break
        done.steps += plan.steps
        done.lost += plan.lost()
    done.seconds = time.monotonic() - began
    return done


def _carry_out(plan: AnyPlan, engine: Engine, done: Indexed, progress: OnProgress | None) -> None:
    """Computes the missing steps of a plan, and puts each block together as soon as its last step is there."""
    attempts: dict[str, int] = {}
    waiting = deque(plan.tasks())
    ready = plan.steps - len(waiting)
    for outcome in outcomes(engine, waiting):
        task, reason = outcome.task, _unfit(plan, outcome)
        attempts[task.name] = attempts.get(task.name, 0) + 1
        if not reason:
            ready += _kept(plan, outcome, done)
            done.failed.pop((task.slice, task.step), None)
        elif attempts[task.name] < ATTEMPTS:
            waiting.append(task)
        else:
            done.failed[task.slice, task.step] = reason
        if progress is not None:
            progress(ready, plan.steps)


def _unfit(plan: AnyPlan, outcome: TaskOutcome) -> str:
    """Why the attempt has to be made again; "" for one that has not.

    The caller does not take a machine's word for it that a file is damaged: that machine may lack a mount. It reads such a file
    itself. A file that is damaged here too is set aside, and the step comes again in the next plan.
    """
    if outcome.result is None:
        return outcome.failure
    sound = [(path, reason) for path, reason in outcome.result.refused if plan.is_sound(outcome.task, path)]
    return f"{sound[0][0]} could not be read there, and can be read here: {sound[0][1]}" if sound else ""


def _kept(plan: AnyPlan, outcome: TaskOutcome, done: Indexed) -> bool:
    """Keeps the result of a step; False where it lacks the rows of a damaged file."""
    if outcome.result is None or outcome.result.refused:
        return False
    plan.keep(outcome.task, table_of(outcome.result))
    done.loops = outcome.task.loops if not outcome.task.corrections else done.loops
    done.computed += 1
    done.tokens += sum(file.tokens for file in outcome.task.files)
    return True


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
        lacking = {each: frozenset(each.ledger.missing(digests, digests)) for each in results}
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
            each.ledger.save(self.digests)
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


def keep_frames(run: Run) -> None:
    """Makes all of them. A run of few steps keeps none, because making them is as fast as reading them."""
    run.metrics()
    run.metrics(())
    for slice_name in WRITTEN[1:]:
        run.metrics((slice_name,))
    for gap in run.gaps:
        run.distributions(LEVELS, gap)
