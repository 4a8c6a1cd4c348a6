"""A training job that is killed. Imports no more than one with a collector does, so that it starts at once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NoReturn

from ratioscope.collectors.collector import Collector

from .logged import logged, parts
from .processes import PATIENCE
from .strike import Calls, do_not_sync, kill, watch_all

Instant = Literal["before a file call", "after a file call", "in the middle of a write", "at a random time"]


@dataclass(frozen=True)
class Death:
    """When a process ends: at its n-th file call, in its n-th write, or after so many seconds, told from outside."""

    instant: Instant
    nth: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class Job:
    """What the process logs, and where. is_synced: whether it waits for the disk."""

    run: Path
    seed: int
    first: int
    stop: int
    is_synced: bool


def record(sender: Connection, job: Job, death: Death | None) -> None:
    """A training job: steps, some of them in two parts, each flushed and told of."""
    if not job.is_synced:
        do_not_sync()
    calls = Calls(0, "before", kill)
    if death is not None and death.instant != "at a random time":
        calls = Calls(death.nth, "after" if death.instant == "after a file call" else "before", kill)
    if death is not None and death.instant == "in the middle of a write":
        _halve(death.nth)
    else:
        watch_all(calls)
    sender.send(-1)
    collector = Collector(
        job.run, name="chaos", rank=0
    )  # no child of a pool, as multiprocessing makes it look: a start of its own
    for step in range(job.first, job.stop):
        flushed = True
        for part in parts(logged(job.seed, step), step):
            collector.log(step=step, **part)
            flushed &= collector.flush(PATIENCE)
        if flushed and not collector.counts.sequences.dropped:
            sender.send(step)
    collector.close(PATIENCE)
    if death is None:
        sender.send(calls.seen)


def _halve(nth: int) -> None:
    """The n-th write of this process writes half of what it should, and is its last."""
    real, seen = os.write, iter(range(1, 1 << 30))

    def write(descriptor: int, data: bytes) -> int:
        if len(data) < 64 or next(seen) < nth:  # what is shorter goes through the pipe
            return real(descriptor, data)
        real(descriptor, data[: len(data) // 2])
        kill()
        raise AssertionError("the process is dead")

    os.write = write  # type: ignore[assignment]


def record_rank(sender: Connection, job: Job, rank: int) -> None:
    """One rank of a job that ends in order; tells when its first step is on disk."""
    do_not_sync()
    with Collector(job.run, name="chaos", rank=rank) as collector:
        for step in range(job.first, job.stop):
            for part in parts(logged(job.seed, step, rank), step):
                collector.log(step=step, **part)
                assert collector.flush(PATIENCE)
            if step == job.first:
                sender.send(step)
        assert collector.close(PATIENCE)


def record_and_fork(sender: Connection, job: Job) -> None:
    """Rank 0; after each step it does not wait for the writer and forks a child, which logs one step of a rank of its own."""
    do_not_sync()
    children = []
    collector = Collector(job.run, name="chaos", rank=0)
    for step in range(job.first, job.stop):
        collector.log(step=step, **logged(job.seed, step, 0))
        child = os.fork()
        if child == 0:
            _one_step(collector, job, step + 1)
        children.append(child)
        if step == job.first:
            collector.flush(PATIENCE)
            sender.send(step)
    statuses = [os.waitpid(child, 0)[1] for child in children]
    assert collector.close(PATIENCE) and not any(statuses)


def _one_step(collector: Collector, job: Job, rank: int) -> NoReturn:
    """What a forked child logs: into the collector it inherited, which must have forgotten its parent, and one of its own."""
    try:
        with Collector(job.run, name="chaos", rank=rank) as own:
            own.log(step=0, **logged(job.seed, 0, rank))
            own.close(PATIENCE)
        is_well = not collector.counts.sequences.offered and collector.close(PATIENCE)
        os._exit(0 if is_well and own.counts.sequences.written == own.counts.sequences.offered else 3)
    except BaseException:
        os._exit(4)
