"""Ranks are killed and started again, one alone or all together, some steps before their last: every step of every rank is shown
once, as it was recorded last, and what is not shown is counted."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import ROWS, logged
from .processes import PATIENCE, nursery
from .strike import do_not_sync
from .truth import compare

AGAIN = 3
"""Steps at most that are recorded again after a start."""


@dataclass
class Rank:
    """One rank of the job: its process, and the steps that it said are on disk."""

    number: int
    process: ForkServerProcess
    pipe: Connection
    acknowledged: set[int] = field(default_factory=set)

    def record(self, steps: Iterator[int] | range) -> None:
        for step in steps:
            self.pipe.send(step)
            assert self.pipe.recv() == step
            self.acknowledged.add(step)

    def die(self, step: int, *, at_work: bool) -> None:
        """By SIGKILL; at_work: while it records a step, of which then nobody knows whether it is on disk."""
        if at_work:
            self.pipe.send(step)
        self.process.kill()
        self.process.join()


def restarted(folder: Path, *, ranks: int, steps: int, seed: int) -> Figures:
    """A job of Ray, whose actors are started again one by one, and that is started anew now and then."""
    figures, chance, root = Figures("Ranks started again, alone or together"), random.Random(seed), folder / "run"
    figures.add(ranks=ranks, steps=steps, ranks_started_again=0, jobs_started_again=0)
    job = [_started(root, seed, number, job=1) for number in range(ranks)]
    jobs = 1
    for step in range(steps):
        for rank in job:
            rank.record(range(step, step + 1))
        fate = chance.random()
        first = max(0, step - chance.randrange(AGAIN))
        if fate < 0.3:
            number = chance.randrange(ranks)
            job[number] = _again(root, seed, job[number], jobs, range(first, step + 1), chance.random() < 0.5)
            figures.add(ranks_started_again=1)
        elif fate < 0.4:
            for rank in job:
                rank.die(step + 1, at_work=chance.random() < 0.5)
            jobs += 1
            job = [_started(root, seed, rank.number, jobs, rank.acknowledged) for rank in job]
            for rank in job:
                rank.record(range(first, step + 1))
            figures.add(jobs_started_again=1)
    for rank in job:
        rank.pipe.close()
        rank.process.join()
    _examine(figures, root, seed, job)
    return figures


def _examine(figures: Figures, root: Path, seed: int, job: list[Rank]) -> None:
    run = open_run(root)
    acknowledged = {(rank.number, step) for rank in job for step in rank.acknowledged}
    whole = compare(figures, run, seed, acknowledged)
    shown = run.metrics()["mismatch/sequences"].to_list()
    figures.demand(whole == acknowledged, f"{sorted(acknowledged ^ whole)} are not shown once")
    figures.demand(shown == [len(job) * ROWS] * len(shown), f"sequences by step: {shown}")
    figures.demand(
        run.writers["attempt"].n_unique() == figures.counts["jobs_started_again"] + 1, f"attempts {run.attempts}"
    )
    kept = run.conservation
    rows = len(run.records().collect())
    figures.demand(rows + kept.hidden == kept.written, f"{kept.written} written, {rows} shown, {kept.hidden} told of")
    figures.demand(kept.pending == 0 and not run.claims.rows, f"{kept}, {run.claims}")
    figures.add(rows_recorded_again=kept.hidden)


def _again(root: Path, seed: int, rank: Rank, job: int, steps: range, at_work: bool) -> Rank:
    rank.die(steps.stop, at_work=at_work)
    fresh = _started(root, seed, rank.number, job, rank.acknowledged)
    fresh.record(steps)
    return fresh


def _started(root: Path, seed: int, number: int, job: int, acknowledged: set[int] | None = None) -> Rank:
    here, there = nursery().Pipe()
    process = nursery().Process(target=_record, args=(there, root, seed, number, job))
    process.start()
    there.close()
    return Rank(number, process, here, set() if acknowledged is None else acknowledged)


def _record(pipe: Connection, root: Path, seed: int, number: int, job: int) -> None:
    """A rank that records the steps it is told to, until nobody tells it any more."""
    do_not_sync()
    os.environ["RAY_JOB_ID"] = f"{job:08x}"
    with Collector(root, name="chaos", rank=number) as collector:
        try:
            while True:
                step = pipe.recv()
                collector.log(step=step, **logged(seed, step, number))
                assert collector.flush(PATIENCE)
                pipe.send(step)
        except EOFError:
            assert collector.close(PATIENCE)
