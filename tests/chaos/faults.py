"""Every call of the writer's thread into the file system or Arrow goes wrong once: before it is done, or after."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import polars as pl

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import logged, parts
from .processes import PATIENCE
from .strike import ENGINES, Calls, When, arrow_calls, errors, file_calls, raising, unsynced
from .truth import compare, metrics_differ

STEPS = 2
Watch = Callable[[Calls], AbstractContextManager[None]]
WATCHES: dict[str, tuple[Watch, int]] = {
    "file": (file_calls, 1),
    "Arrow": (arrow_calls, 1),
    "statistics": (lambda calls: arrow_calls(calls, ENGINES), 200),
}
"""What is watched, and how many times as rarely a call of it fails."""


@dataclass
class Trained:
    """What a training loop knows of its collector. raised: what came out of `log`, which should be nothing."""

    acknowledged: set[tuple[int, int]] = field(default_factory=set)
    raised: list[str] = field(default_factory=list)
    offered: int = 0
    written: int = 0
    dropped: int = 0
    pending: int = 0


def faulted(folder: Path, *, seed: int, stride: int) -> Figures:
    """Every `stride`-th call of each kind fails, with the errors in turn. 1: all of them."""
    figures = Figures("A call that fails")
    clean = _clean_metrics(folder / "clean", seed)
    figures.add(
        file_calls_failed=0,
        Arrow_calls_failed=0,
        statistics_calls_failed=0,
        acknowledged=0,
        lost=0,
        torn=0,
        altered=0,
        dropped=0,
    )
    for kind, (watch, rarer) in WATCHES.items():
        for place, (nth, when) in enumerate(_places(folder / "count", watch, seed, stride * rarer)):
            error = errors()[place % len(errors())]
            calls = Calls(nth, when, raising(error))
            trained = _train(folder / "run", watch, calls, seed)
            figures.add(**{f"{kind}_calls_failed": 1, "dropped": trained.dropped})
            part = Figures("")
            _examine(part, folder / "run", seed, trained, clean)
            figures.add(**part.counts)
            figures.wrong += [f"{error!r} {when} the {nth}th {kind} call: {wrong}" for wrong in part.wrong]
            shutil.rmtree(folder / "run")
    return figures


def _clean_metrics(root: Path, seed: int) -> pl.DataFrame:
    _train(root, file_calls, Calls(0, "before", lambda: None), seed)
    return open_run(root).metrics()


def _places(root: Path, watch: Watch, seed: int, stride: int) -> Iterator[tuple[int, When]]:
    """Every `stride`-th call of a run, in turn before and after; with a stride of 1 each in both ways."""
    calls = Calls(0, "before", lambda: None)
    _train(root, watch, calls, seed)
    shutil.rmtree(root)
    ways: tuple[When, ...] = ("before", "after")
    for place, nth in enumerate(range(1, calls.seen + 1, stride)):
        for when in ways if stride == 1 else (ways[place % 2],):
            yield nth, when


def _train(root: Path, watch: Watch, calls: Calls, seed: int) -> Trained:
    """A training loop that flushes after every part of a step, and closes."""
    trained = Trained()
    with unsynced(), watch(calls):
        collector = Collector(root, name="faulted")  # its thread begins at once, and is watched
        for step in range(STEPS):
            dropped, flushed = collector.counts.sequences.dropped, True
            for part in parts(logged(seed, step), step):
                flushed &= _log(trained, collector, step, part)
            if flushed and collector.counts.sequences.dropped == dropped:
                trained.acknowledged.add((0, step))
        collector.event("weight_sync", STEPS)
        closed = collector.close(PATIENCE)
    tally = collector.counts.sequences
    trained.offered, trained.written, trained.dropped = tally.offered, tally.written, tally.dropped
    trained.pending = tally.pending if closed else tally.offered
    return trained


def _log(trained: Trained, collector: Collector, step: int, part: dict[str, object]) -> bool:
    try:
        collector.log(step=step, **part)  # type: ignore[arg-type]
        return collector.flush(PATIENCE)
    except BaseException as error:
        trained.raised.append(repr(error))
        return False


def _examine(figures: Figures, root: Path, seed: int, trained: Trained, clean: pl.DataFrame) -> None:
    figures.demand(not trained.raised, f"log raised {trained.raised}")
    figures.demand(trained.pending == 0, f"{trained.pending} of {trained.offered} are neither written nor dropped")
    figures.add(acknowledged=len(trained.acknowledged))
    run = open_run(root)
    whole = [step for _, step in compare(figures, run, seed, trained.acknowledged)]
    differing = metrics_differ(run.metrics().filter(pl.col("step").is_in(whole)), clean)
    figures.demand(not differing, f"metrics of steps {differing} differ")
    rows = len(run.records().collect())
    figures.demand(rows >= trained.written, f"{trained.written} counted as written, {rows} read")
    told = int(run.drops["sequences"].sum())
    figures.demand(told == trained.dropped, f"{trained.dropped} dropped, the run tells of {told}")
    figures.demand(not run.quarantined, f"set aside: {run.quarantined}")
