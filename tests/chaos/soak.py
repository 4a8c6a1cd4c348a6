"""Hours of steps: memory stays where it was. Long only; `make chaos` takes as many minutes as CHAOS_MINUTES says."""

from __future__ import annotations

import os
import shutil
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

from ratioscope.collectors.collector import Collector

from .figures import Figures
from .logged import logged
from .processes import PATIENCE, nursery
from .strike import do_not_sync

MOST_GROWTH = 8.0
"""MB between the means of the second and the last fifth. Convention: a leak of 1 KB a step shows within ten thousand steps."""
STEPS_A_SECOND = 4
"""Faster than any trainer of language models, and a fraction of a core. Convention."""
_KEPT_STEPS = 2000


def soaked(folder: Path, *, minutes: float, seed: int) -> Figures:
    """One process logs and flushes step after step, at the pace of a fast trainer."""
    figures = Figures("Soak", remarks=[f"at most {STEPS_A_SECOND} steps a second, of 32 sequences each"])
    receiver, sender = nursery().Pipe(duplex=False)
    process = nursery().Process(target=_soak, args=(sender, folder / "run", minutes * 60, seed))
    process.start()
    sender.close()
    steps, offered, written, megabytes = receiver.recv()
    process.join()
    fifths = [float(np.mean(part)) for part in np.array_split(np.array(megabytes), 5)]
    growth = fifths[-1] - fifths[1]
    figures.demand(process.exitcode == 0, f"exit code {process.exitcode}")
    figures.demand(growth < MOST_GROWTH, f"memory by fifths of the time: {[round(part, 1) for part in fifths]} MB")
    figures.demand(offered == written, f"{written} of {offered} sequences written")
    figures.add(
        minutes=round(minutes),
        steps=steps,
        sequences=written,
        MB_at_first=round(fifths[1]),
        MB_at_last=round(fifths[-1]),
    )
    return figures


def _soak(sender: Connection, run: Path, seconds: float, seed: int) -> None:
    do_not_sync()
    began, step, megabytes = time.monotonic(), 0, list[float]()
    batches = [logged(seed, step, rows=32) for step in range(16)]
    with Collector(run, name="soak") as collector:
        while (passed := time.monotonic() - began) < seconds:
            time.sleep(max(0.0, step / STEPS_A_SECOND - passed))
            collector.log(step=step, **batches[step % 16])
            collector.flush(PATIENCE)
            megabytes.append(_resident())
            step += 1
            if step % _KEPT_STEPS == 0:  # the disk is not what is watched here
                for old in sorted((run / "tokens").iterdir())[:-1]:
                    shutil.rmtree(old)
    tally = collector.counts.sequences
    sender.send((step, tally.offered, tally.written, megabytes))


def _resident() -> float:
    """MB of this process in memory."""
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
