"""Processes begin in the middle of recording, by fork and by spawn: what each logs is there once, and nobody waits for ever."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

from ratioscope.ingest.run import open_run

from .figures import Figures
from .processes import nursery
from .truth import compare
from .victim import Job, record_and_fork, record_rank


def forked(folder: Path, *, forks: int, seed: int) -> Figures:
    """A job forks a child after every step, while its writer is at work; one more process is spawned beside it."""
    figures, root = Figures("Fork and spawn in the middle"), folder / "run"
    receiver, sender = nursery().Pipe(duplex=False)
    parent = nursery().Process(target=record_and_fork, args=(sender, Job(root, seed, 0, forks, False)))
    parent.start()
    sender.close()
    receiver.recv()
    ready, told = multiprocessing.get_context("spawn").Pipe(duplex=False)
    rank = forks + 1
    spawned = multiprocessing.get_context("spawn").Process(
        target=record_rank, args=(told, Job(root, seed, 0, 2, False), rank)
    )
    spawned.start()
    told.close()
    spawned.join()
    ready.close()
    parent.join()
    figures.demand((parent.exitcode, spawned.exitcode) == (0, 0), f"exit codes {parent.exitcode}, {spawned.exitcode}")
    acknowledged = {(0, step) for step in range(forks)} | {(child, 0) for child in range(1, forks + 1)}
    acknowledged |= {(rank, 0), (rank, 1)}
    run = open_run(root)
    whole = compare(figures, run, seed, acknowledged)
    figures.demand(not run.shadowed and list(run.attempts) == [0], f"attempts {run.attempts}, hidden {run.shadowed}")
    figures.demand(whole == acknowledged and not run.quarantined, f"{sorted(acknowledged ^ whole)}, {run.quarantined}")
    figures.add(forks=forks, spawned=1, steps_of_writers=len(whole))
    return figures
