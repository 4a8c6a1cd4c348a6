"""SIGKILL of a recording process at random instants; then the run is read, and started again in the same folder.

A step is acknowledged when `flush` has returned True and nothing was dropped; the process tells so through a pipe.
"""

from __future__ import annotations

import random
import shutil
import signal
from pathlib import Path

import polars as pl

from ratioscope.ingest.run import open_run

from .figures import Figures
from .processes import nursery, told_by
from .truth import compare, metrics_differ
from .victim import Death, Instant, Job, record

LIVES = 5
STEPS = 5
"""Starts of one run folder, and steps that each start would log."""

Steps = set[tuple[int, int]]
"""(rank, step)."""

INSTANTS: tuple[Instant, ...] = (
    "before a file call", "after a file call", "before a file call", "after a file call", "in the middle of a write",
    "at a random time",
)  # fmt: skip


def killed(folder: Path, *, kills: int, seed: int, is_synced: bool) -> Figures:
    """As many processes are killed as `kills`, LIVES of them in each run folder. is_synced: whether they wait for the disk."""
    figures, chance = Figures("SIGKILL of a recording process"), random.Random(seed)
    figures.remarks.append("fsync waits for the disk" if is_synced else "fsync does not wait for the disk")
    figures.add(kills=0, ended_before_their_kill=0, acknowledged=0)
    calls = _rehearsed(folder / "rehearsal", seed)
    clean = open_run(folder / "rehearsal").metrics()
    run, acknowledged, lives = folder / "0", Steps(), 0
    while figures.counts["kills"] < kills:
        if lives == LIVES:
            shutil.rmtree(run)
            run, acknowledged, lives = folder / str(figures.counts["kills"]), set(), 0
        lives += 1
        death = _death(chance, calls, is_synced)
        first = max((step + 1 for _, step in acknowledged), default=0)
        _life(figures, Job(run, seed, first, first + STEPS, is_synced), acknowledged, death)
        _examine(figures, run, seed, acknowledged, clean)
    return figures


def _death(chance: random.Random, calls: int, is_synced: bool) -> Death:
    instant = chance.choice(INSTANTS)
    most = {"in the middle of a write": calls // 12}.get(instant, calls)
    return Death(instant, chance.randint(1, max(1, most)), chance.uniform(0, 1.0 if is_synced else 0.1))


def _rehearsed(run: Path, seed: int) -> int:
    """File calls of a life that nobody ends. The run it leaves is the clean one."""
    receiver, sender = nursery().Pipe(duplex=False)
    process = nursery().Process(target=record, args=(sender, Job(run, seed, 0, STEPS * LIVES, False), None))
    process.start()
    sender.close()
    told = told_by(receiver)
    process.join()
    return int(told[-1]) // LIVES


def _life(figures: Figures, job: Job, acknowledged: Steps, death: Death) -> None:
    receiver, sender = nursery().Pipe(duplex=False)
    process = nursery().Process(target=record, args=(sender, job, death))
    process.start()
    sender.close()
    if death.instant == "at a random time":
        receiver.poll(30)  # until it has begun
        process.join(death.seconds)
        process.kill()
    told = told_by(receiver)
    process.join()
    fresh = {(0, step) for step in told if job.first <= step < job.stop}
    acknowledged |= fresh
    died = process.exitcode == -signal.SIGKILL
    figures.add(kills=int(died), ended_before_their_kill=int(not died), acknowledged=len(fresh))
    figures.demand(process.exitcode in (0, -signal.SIGKILL), f"{death}: exit code {process.exitcode}")


def _examine(figures: Figures, root: Path, seed: int, acknowledged: Steps, clean: pl.DataFrame) -> None:
    if not (root / "run.json").exists():
        figures.demand(not acknowledged, f"{root.name}: acknowledged steps, and no run")
        return
    run, part = open_run(root), Figures("")
    whole = [step for _, step in compare(part, run, seed, acknowledged)]
    shown = run.metrics() if run.steps else clean.clear()
    differing = metrics_differ(shown.filter(pl.col("step").is_in(whole)), clean)
    part.demand(not differing, f"metrics of steps {differing} are not those of a run that nobody killed")
    part.demand(not run.quarantined, f"set aside: {run.quarantined}")
    part.add(torn_logs=sum("unfinished last line" in note for note in run.notes), left_uncommitted=len(run.uncommitted))
    figures.add(**part.counts)
    figures.wrong += part.wrong
