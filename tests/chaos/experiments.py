"""Experiments begin in one folder at one instant, are killed, and begin again: each lies in a run of its own, whole."""

from __future__ import annotations

import os
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from ratioscope.collectors.collector import Collector
from ratioscope.ingest.files.folder import runs_in
from ratioscope.ingest.run import open_run

from .figures import Figures
from .logged import logged
from .processes import PATIENCE, nursery
from .strike import do_not_sync
from .truth import compare

STEPS = 3
"""Steps that each start records; the last of them is recorded again by the next start."""
SEEDS_APART = 1000


@dataclass(frozen=True)
class Experiment:
    """An experiment. Every other one has a launcher and several ranks."""

    number: int
    ranks: int

    def started(self, root: Path, seed: int, start: int) -> list[tuple[ForkServerProcess, Connection]]:
        """Its ranks, all of one start."""
        launch = f"{self.number}.{start}" if self.ranks > 1 else ""
        begun = []
        for rank in range(self.ranks):
            here, there = nursery().Pipe()
            arguments = (there, root, seed + SEEDS_APART * self.number, rank, launch, self.number)
            process = nursery().Process(target=_record, args=arguments)
            process.start()
            there.close()
            begun.append((process, here))
        return begun


def mixed(folder: Path, *, experiments: int, ranks: int, starts: int, seed: int) -> Figures:
    """All experiments begin `starts` times in one folder, each time at one instant; half of the starts are killed."""
    figures, root = Figures("Several experiments in one folder"), folder / "run"
    figures.add(experiments=experiments, starts=experiments * starts, killed=0)
    every = [Experiment(number, 1 + number % 2 * (ranks - 1)) for number in range(experiments)]
    for start in range(starts):
        begun = [each.started(root, seed, start) for each in every]
        try:
            _record_together(begun, range(start * (STEPS - 1), (start + 1) * (STEPS - 1) + 1))
            for number, each in enumerate(begun):
                is_killed = (start + number) % 2 == 1
                figures.add(killed=is_killed)
                for process, pipe in each:
                    process.kill() if is_killed else pipe.close()
        except (EOFError, OSError) as error:
            figures.wrong.append(f"start {start}: a rank ended: {error!r}")
            for process, _ in (rank for each in begun for rank in each):
                process.kill()
        for process, _ in (rank for each in begun for rank in each):
            process.join()
    _examine(figures, folder, every, seed, starts)
    return figures


def _record_together(begun: list[list[tuple[ForkServerProcess, Connection]]], steps: range) -> None:
    pipes = [pipe for each in begun for _, pipe in each]
    for step in steps:
        for pipe in pipes:
            pipe.send(step)
        for pipe in pipes:
            assert pipe.recv() == step


def _examine(figures: Figures, folder: Path, every: list[Experiment], seed: int, starts: int) -> None:
    runs = {run.info["config"]["experiment"]: run for run in map(open_run, runs_in(folder))}
    figures.demand(len(runs_in(folder)) == len(runs) == len(every), f"{len(runs_in(folder))} runs, of {sorted(runs)}")
    last = starts * (STEPS - 1) + 1
    for each in (each for each in every if each.number in runs):
        run = runs[each.number]
        acknowledged = {(rank, step) for rank in range(each.ranks) for step in range(last)}
        whole = compare(figures, run, seed + SEEDS_APART * each.number, acknowledged)
        figures.demand(
            whole == acknowledged, f"experiment {each.number}: {sorted(acknowledged ^ whole)} are not shown once"
        )
        figures.demand(len(run.attempts) == starts, f"experiment {each.number}: attempts {run.attempts}")
        figures.demand(not run.conservation.dropped, f"experiment {each.number}: {run.conservation}")


def _record(pipe: Connection, root: Path, seed: int, rank: int, launch: str, experiment: int) -> None:
    """A rank that records the steps it is told to, until nobody tells it any more."""
    do_not_sync()
    if launch:
        os.environ["RATIOSCOPE_LAUNCH"] = launch
    with Collector(root, name="chaos", rank=rank, config={"experiment": experiment}) as collector:
        try:
            while True:
                step = pipe.recv()
                collector.log(step=step, **logged(seed, step, rank))
                assert collector.flush(PATIENCE)
                pipe.send(step)
        except EOFError:
            assert collector.close(PATIENCE)
