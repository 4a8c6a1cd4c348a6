"""The process that writes for a trainer is killed until a thread writes instead: all is there, and no reader doubts it."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from ratioscope.collectors.collector import Collector
from ratioscope.collectors.writing.writer_process import WriterProcess
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import logged
from .processes import PATIENCE, nursery
from .truth import compare

WRITERS = 3
"""Processes that are killed, before the collector gives up on processes."""
_STEPS_EACH = 3
_LEFT = ("unfinished last line", "no commit names it")
"""Parts of what is said of any writer that was killed in the middle of a write."""
_IDLE = 0.3  # share of the kills that wait until the writer has nothing to do
_STEP_SECONDS = 0.1
_MOST_SECONDS = 0.03  # a step takes the writer about half of it


def writers_killed(folder: Path, *, trainers: int, seed: int) -> Figures:
    """As many trainers, each in a run folder of its own. Every second one is killed in the end, and started again there."""
    figures, chance = Figures("A writer's process that is killed again and again"), random.Random(seed)
    figures.add(trainers=0, writers_killed=0, acknowledged=0, dropped=0, dropped_and_there=0)
    for number in range(trainers):
        root, first, acknowledged, told = folder / str(number), 0, set[int](), dict[str, Any]()
        for is_last in (False, True)[1 - number % 2 :]:
            told = _life(root, seed, first, chance.random(), is_last)
            acknowledged |= told["acknowledged"]
            first = max(acknowledged) + 1
            figures.add(trainers=1, writers_killed=WRITERS)
        _examine(figures, root, seed, acknowledged, told["counts"] if number % 2 == 0 else None)
    return figures


def _life(root: Path, seed: int, first: int, share: float, is_last: bool) -> dict[str, Any]:
    receiver, sender = nursery().Pipe(duplex=False)
    process = nursery().Process(target=_train, args=(sender, root, seed, first, share, is_last))
    process.start()
    sender.close()
    told: dict[str, Any] = receiver.recv()
    process.join()
    return told


def _train(sender: Connection, root: Path, seed: int, first: int, share: float, is_last: bool) -> None:
    """Logs steps, while its writers are killed: at once, in the middle of a write, or when they have nothing to do."""
    pids, acknowledged, real, chance = list[int](), set[int](), WriterProcess._hear, random.Random(share)

    def hear(self: WriterProcess, reply: Any) -> None:
        pids.extend([reply["ready"]] if "ready" in reply else [])
        real(self, reply)

    WriterProcess._hear = hear  # type: ignore[method-assign]
    collector, killers = Collector(root, name="dead writers", rank=0, writer="process"), list[threading.Thread]()
    for step in range(first, first + (WRITERS + 1) * _STEPS_EACH):
        place, writer = (step - first) % _STEPS_EACH, (step - first) // _STEPS_EACH
        collector.log(step=step, **logged(seed, step))
        if place == 1 and writer < WRITERS:
            if chance.random() < _IDLE and collector.flush(PATIENCE):
                acknowledged.add(step)
            killers.append(threading.Thread(target=_kill, args=(pids[writer], chance.uniform(0, _MOST_SECONDS))))
            killers[-1].start()
        if collector.flush(PATIENCE):
            acknowledged.add(step)
        while killers:
            killers.pop().join()
    assert len(pids) == WRITERS, pids
    if is_last:
        collector.close(PATIENCE)
    counts = collector.counts.sequences
    sender.send({"acknowledged": acknowledged, "counts": (counts.offered, counts.dropped)})
    if not is_last:
        os.kill(os.getpid(), signal.SIGKILL)


def _kill(pid: int, seconds: float) -> None:
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    time.sleep(_STEP_SECONDS)  # the trainer's next step comes later than the news of the death


def _examine(figures: Figures, root: Path, seed: int, acknowledged: set[int], counts: tuple[int, int] | None) -> None:
    run, part = open_run(root), Figures("")
    compare(part, run, seed, {(0, step) for step in acknowledged})
    found, kept = verify(root), run.conservation
    doubts = [*(f"{each.file}: {each.found}" for each in found.troubles), *run.notes]
    doubts = [doubt for doubt in doubts if not any(left in doubt for left in _LEFT)]
    part.demand(not doubts, f"doubted: {doubts}")
    part.demand(not run.quarantined, f"set aside: {run.quarantined}")
    if counts is not None:  # the trainer has ended in order, and knows
        part.demand((kept.lost, kept.pending, kept.gone) == (0, 0, 0), f"{kept}")
        offered, dropped = counts
        part.demand(kept.dropped == dropped, f"the trainer counted {dropped} as dropped, the readers {kept}")
        part.demand(
            0 <= kept.offered - offered <= dropped, f"the trainer counted {offered} as offered, the readers {kept}"
        )
        part.add(dropped_and_there=kept.offered - offered)  # killed between a commit and the report of it
    figures.add(acknowledged=len(acknowledged), dropped=kept.dropped, **part.counts)
    figures.wrong += [f"{root.name}: {wrong}" for wrong in part.wrong]
