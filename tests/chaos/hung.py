"""The run folder hangs at a random moment, from before the collector is made to after it is closed, and training does not notice.

Every call into the file system below the folder waits, in the trainer's process and in the writer's: a call of the trainer's own
thread would wait as well, and be seen.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

from ratioscope.collectors.collector import Collector
from ratioscope.collectors.watching.hooks import Call, Hook, put_on
from ratioscope.collectors.watching.recording import Recording

from .figures import Figures
from .logged import logged
from .processes import PATIENCE
from .stuck import hanging_below
from .trainer_side import HELD, STEPS, TrainerSide, begin, examine, wait_for_the_writer

HOOK = Hook("chaos_trainer", "train", after="trained")
_SHORT = 0.2  # seconds that the trainer gives a flush or a close


def hung(folder: Path, *, runs: int, seed: int) -> Figures:
    """As many runs, half of them by a writer's process, half of them recorded by an adapter."""
    figures, chance = Figures("A run folder that hangs"), random.Random(seed)
    begin(figures)
    figures.add(hung_from_the_start=0, hung_at_the_close=0)
    figures.remarks += [
        "Calls into the file system that wait, in the processes of trainer and writer, stand for a disk whose server is gone",
        "Rows that a writer's process wrote after a close had given up count as dropped, and are read",
    ]
    for number in range(runs):
        writer = ("process", "thread")[number % 2]
        with patch.dict(os.environ, {"RATIOSCOPE_WRITER": writer}):
            _record(figures, folder / str(number), seed, chance, by_adapter=number % 4 > 1)
    return figures


class _Trainer:
    """A training loop that logs by itself, or whose calls an adapter sees: its collector is made in the first look."""

    def __init__(self, side: TrainerSide, root: Path, seed: int, *, by_adapter: bool) -> None:
        self._side, self._seed = side, seed
        self._module: ModuleType | None = None
        if by_adapter:
            self._module = ModuleType("chaos_trainer")
            vars(self._module)["train"] = lambda step: None
            self._recording = Recording(root, {"name": "hung", "attempt": 0}, "toy")
            with patch.dict("sys.modules", {"chaos_trainer": self._module}):
                put_on([HOOK], self, self._recording)
        else:
            made = side.call(lambda: Collector(root, name="hung", rank=0, attempt=0))
            assert made is not None
            self._made = made

    @property
    def collector(self) -> Collector:
        return self._made if self._module is None else self._recording.collector

    def train(self, step: int) -> None:
        module = self._module
        log: Callable[[], None] = lambda: self._made.log(step=step, **logged(self._seed, step))  # noqa: E731
        self._side.call(log if module is None else lambda: module.train(step))

    def trained(self, call: Call) -> None:
        step = call.arguments["step"]
        self._recording.log(step=step, **logged(self._seed, step))


def _record(figures: Figures, root: Path, seed: int, chance: random.Random, *, by_adapter: bool) -> None:
    """One run. It hangs from a random step on, the first of them before the collector is made, and up to a random later one."""
    side, gate = TrainerSide(), root.with_suffix(".hangs")
    first = -1 if chance.random() < 0.3 else chance.randrange(STEPS)
    last = chance.randint(first + 1, STEPS)
    stays = last == STEPS or chance.random() < 0.4
    with hanging_below(f"{root}", f"{gate}", HELD):
        if first < 0:
            gate.touch()
        trainer = _Trainer(side, root, seed, by_adapter=by_adapter)
        for step in range(STEPS):
            if step == first:
                gate.touch()
            elif step == last and not stays:
                gate.unlink()
            trainer.train(step)
            if chance.random() < 0.3:
                side.flush(trainer.collector, step, _SHORT)
        collector = trainer.collector
        closed = bool(side.call(lambda: collector.close(_SHORT), _SHORT)) if stays else False
        with suppress(FileNotFoundError):
            gate.unlink()
        if not stays:
            side.flush(collector, STEPS - 1, PATIENCE)
            closed = bool(side.call(lambda: collector.close(PATIENCE), PATIENCE))
        wait_for_the_writer(collector)
    name = f"run {root.name}, hung from step {first} to {'the close' if stays else last}"
    figures.demand(closed is not stays, f"{name}: close said {closed}")
    figures.add(hung_from_the_start=first < 0, hung_at_the_close=stays)
    examine(figures, side, collector, root, seed, name=name, is_settled=closed)
