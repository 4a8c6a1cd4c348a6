"""Trainers that are ended at random instants while a process of its own writes for them: by every signal that launchers send.

A trainer never flushes, as few do. What `log` had taken a second before its end must be on disk once the writer has ended.
"""

from __future__ import annotations

import os
import random
import signal
import time
from multiprocessing.connection import Connection
from pathlib import Path

from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.trainer_process import VARIABLE
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import ROWS, logged
from .processes import PATIENCE, nursery, told_by
from .truth import compare, steps_read

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
_MOMENT = 1.0
_PAUSE = 0.2  # what a step takes a trainer


def ended(folder: Path, *, trainers: int, seed: int) -> Figures:
    """As many trainers end, each in a run folder of its own."""
    figures, chance = Figures("A trainer that is ended"), random.Random(seed)
    figures.add(trainers=0, steps_logged=0, steps_on_disk=0, steps_of_the_last_moment_lost=0)
    for number in range(trainers):
        _end(figures, folder / str(number), seed, SIGNALS[number % len(SIGNALS)], chance.uniform(2.0, 5.0))
    return figures


def _end(figures: Figures, root: Path, seed: int, number: int, seconds: float) -> None:
    receiver, sender = nursery().Pipe(duplex=False)
    process = nursery().Process(target=train, args=(sender, root, seed))
    process.start()
    sender.close()
    receiver.poll(PATIENCE)  # until it has begun
    process.join(seconds)
    assert process.pid is not None
    end = time.monotonic()
    os.kill(process.pid, number)
    taken = dict(told_by(receiver))
    process.join()
    gone = _has_ended(process.pid)
    figures.demand(gone, f"{root.name}: the writer's process did not end with its trainer")
    settled = {(0, step) for step, when in taken.items() if when < end - _MOMENT}
    run, part = open_run(root), Figures("")
    whole = {key for key in compare(part, run, seed, settled) if key in steps_read(run)}
    part.demand(not run.quarantined, f"set aside: {run.quarantined}")
    part.demand({step for _, step in whole} == set(range(len(whole))), "steps are missing in the middle")
    figures.add(**part.counts, trainers=1, steps_logged=len(taken), steps_on_disk=len(whole))
    figures.add(steps_of_the_last_moment_lost=max(0, len(taken) - len(whole)))
    figures.wrong += [f"{root.name}, {signal.Signals(number).name}: {wrong}" for wrong in part.wrong]


def train(sender: Connection, root: Path, seed: int) -> None:
    """Logs step after step, and tells of each when `log` has returned; SIGTERM and SIGHUP end it as they end any process."""
    for number in (signal.SIGTERM, signal.SIGHUP):  # which `nohup` has every child ignore
        signal.signal(number, signal.SIG_DFL)
    collector = Collector(root, name="ended", rank=0, writer="process")
    step = 0
    while True:
        collector.log(step=step, **logged(seed, step, rows=ROWS))
        sender.send((step, time.monotonic()))
        step += 1
        time.sleep(_PAUSE)


def _has_ended(trainer: int) -> bool:
    """Waits until no process writes for the trainer any more."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if not any(f'"pid": {trainer},' in _environment(entry) for entry in Path("/proc").glob("[0-9]*")):
            return True
        time.sleep(0.05)
    return False


def _environment(process: Path) -> str:
    try:
        found = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return ""
    return next((item.decode() for item in found if item.startswith(VARIABLE.encode())), "")
