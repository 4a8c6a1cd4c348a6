"""Computes what a run lacks, step by step, and keeps it in the user's cache. A finished step is kept within two seconds.

The plan comes from the commit logs: rows that were replaced, set aside or recorded again by a later start are in no task.
Steps are put together in the order of steps, whatever ended first, so that the result is bit for bit that of a reader that
works alone. The run folder is never written.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import pyarrow as pa

from ..files.progress import OnProgress
from ..jobs.correction_results import AnyCorrection
from ..run import Run
from .correction_plan import CorrectionPlan
from .engine import Engine, TaskOutcome, outcomes
from .slice_plan import SlicePlan
from .task import IndexTask, table_of

ATTEMPTS = 5
"""Times that a step is tried. Each attempt may run in another process, or on another machine."""


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
