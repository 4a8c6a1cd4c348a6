"""Many processes write one run while two readers follow it: no reader ever sees a part of what a writer wrote of a step."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event, Thread

from ratioscope.ingest.run import open_run

from .figures import Figures
from .processes import nursery
from .truth import compare
from .victim import Job, record_rank


def crowded(folder: Path, *, writers: int, steps: int, seed: int) -> Figures:
    """As many ranks as `writers`, each in a process of its own; the readers are threads, each with a run of its own."""
    figures, root, over = Figures("Many processes write while two read"), folder / "run", Event()
    pipes: list[Connection] = []
    processes = []
    for rank in range(writers):
        receiver, sender = nursery().Pipe(duplex=False)
        job = Job(root, seed, 0, steps, False)
        processes.append(nursery().Process(target=record_rank, args=(sender, job, rank)))
        processes[-1].start()
        sender.close()
        pipes.append(receiver)
    pipes[0].recv()  # there is a run to open
    seen = [Figures("") for _ in range(2)]
    readers = [Thread(target=_follow, args=(part, root, seed, over)) for part in seen]
    for reader in readers:
        reader.start()
    for process in processes:
        process.join()
    over.set()
    for reader in readers:
        reader.join()
    for part in seen:
        figures.add(**part.counts)
        figures.wrong += part.wrong
    acknowledged = {(rank, step) for rank in range(writers) for step in range(steps)}
    run = open_run(root)
    whole = compare(figures, run, seed, acknowledged)
    figures.demand(whole == acknowledged and not run.quarantined, f"{len(whole)} steps whole, {run.quarantined}")
    figures.demand(run.conservation.written == run.conservation.offered, f"{run.conservation}")
    figures.demand(all(process.exitcode == 0 for process in processes), "a writer failed")
    figures.add(writers=writers, steps_of_writers=len(acknowledged))
    return figures


def _follow(figures: Figures, root: Path, seed: int, over: Event) -> None:
    """Looks again and again, once more after the last writer has closed."""
    run = open_run(root)
    before: set[tuple[int, int]] = set()
    while True:
        last = over.is_set()
        run.refresh()
        now = compare(figures, run, seed, before)  # what was seen once stays
        figures.demand(now >= before, f"steps {sorted(before - now)} were there before and are not any more")
        figures.demand(not run.quarantined, f"set aside while being written: {run.quarantined}")
        figures.add(looks=1)
        before = now
        if last:
            return
