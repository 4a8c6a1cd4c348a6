"""Handlers of the trainer's log that raise, hang, or call the collector again, at every notice of a run.

Notices come of the trainer's own calls (batches that are malformed, looks that fail) and of the writer (file system calls that
fail, a writer's process that is killed), at random steps.
"""

from __future__ import annotations

import logging
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process import notice

from .figures import Figures
from .logged import logged
from .processes import PATIENCE
from .strike import Calls, errors, file_calls, raising
from .threadless import Limits, ended, kill_writers, limited
from .trainer_side import HELD, STEPS, TrainerSide, begin, examine, wait_for_the_writer

_PATIENCE = 0.2  # seconds that the collector waits for a handler
_FILE_CALLS = 250  # of a run, about
_OF_HANDLERS, _MALFORMED = 1000, 2000  # the first steps that handlers log, and that cannot be read
_RAISED: tuple[type[BaseException], ...] = (RuntimeError, SystemExit, KeyboardInterrupt, MemoryError, RecursionError)
KINDS = ("raise", "hang", "log", "flush", "close")


class _Handler(logging.Handler):
    """Hears the notices of one run, and does at each what it is made for."""

    def __init__(self, act: Callable[[], object]) -> None:
        super().__init__()
        self.act, self.heard = act, 0

    def emit(self, record: logging.LogRecord) -> None:
        self.heard += 1
        self.act()


def handled(folder: Path, *, runs: int, seed: int) -> Figures:
    """As many runs, each with a handler of one kind, half of them by a writer's process."""
    figures, chance = Figures("Handlers of the log that raise, hang or call back"), random.Random(seed)
    begin(figures)
    figures.add(notices=0, **dict.fromkeys((f"runs_whose_handlers_{kind}" for kind in KINDS), 0))
    for number in range(runs):
        writer = ("process", "thread")[number // len(KINDS) % 2]
        with patch.dict(os.environ, {"RATIOSCOPE_WRITER": writer}):
            _record(figures, folder / str(number), seed, chance, kind=KINDS[number % len(KINDS)])
    return figures


def _record(figures: Figures, root: Path, seed: int, chance: random.Random, *, kind: str) -> None:
    """One run. A collector that a handler closes takes no more, and counts what comes."""
    side, gate = TrainerSide(), threading.Event()
    error = chance.choice(errors())
    is_thread = os.environ["RATIOSCOPE_WRITER"] == "thread"  # else the calls of this process are pipes to the writer's
    calls = Calls(chance.randint(1, _FILE_CALLS) if is_thread else 0, "before", raising(error))
    made: list[Collector] = []
    handler = _Handler(_act(kind, made, gate, seed))
    with limited(Limits()) as limits, file_calls(calls), _on(handler, gate):
        collector = side.call(lambda: Collector(root, name="handled", rank=0, attempt=0))
        assert collector is not None
        made.append(collector)
        for step in range(STEPS):
            side.call(_log(collector, step, seed))
            _provoke(side, collector, step, chance)
            if chance.random() < 0.1:
                kill_writers(limits)
            if chance.random() < 0.3:
                side.flush(collector, step, PATIENCE)
        side.flush(collector, STEPS - 1, PATIENCE)
        side.call(lambda: collector.close(PATIENCE), PATIENCE)
        wait_for_the_writer(collector)
    name = f"run {root.name}, whose handlers {kind}, {error!r} at file call {calls.nth}, {limits}"
    figures.demand(handler.heard > 0, f"{name}: no notice was heard")
    figures.add(notices=handler.heard, **{f"runs_whose_handlers_{kind}": 1})
    is_settled = kind != "close" and not ended(limits) and (calls.seen < calls.nth or not is_thread)
    examine(figures, side, collector, root, seed, name=name, is_settled=is_settled)


def _log(collector: Collector, step: int, seed: int) -> Callable[[], None]:
    return lambda: collector.log(step=step, **logged(seed, step))


def _provoke(side: TrainerSide, collector: Collector, step: int, chance: random.Random) -> None:
    """What is told of: a batch whose sides differ in length, and a look that fails, each of a kind that is new."""
    if chance.random() < 0.3:
        ragged: dict[str, Any] = {"rollout_logprobs": [[-1.0, -1.0]], "old_logprobs": [[-1.0]]}
        side.call(lambda: collector.log(step=_MALFORMED + step, **ragged))
    if chance.random() < 0.5:
        side.call(lambda: collector.failed(f"look {step}", RuntimeError("of the trainer's")))


def _act(kind: str, made: list[Collector], gate: threading.Event, seed: int) -> Callable[[], object]:
    """What a handler does."""
    numbers = count()

    def act() -> object:
        number = next(numbers)
        if kind == "raise":
            raise _RAISED[number % len(_RAISED)]
        if kind == "hang":
            return gate.wait(HELD)
        for collector in made:
            if kind == "log":
                _log(collector, _OF_HANDLERS + number, seed)()
            elif kind == "flush":
                collector.flush(_PATIENCE)
            else:
                collector.close(_PATIENCE)
        return None

    return act


@contextmanager
def _on(handler: logging.Handler, gate: threading.Event) -> Iterator[None]:
    """The handler is on the log, which is spoken to as in a process of its own; in the end it lets go of whoever speaks."""
    logger, disabled = notice.logger, logging.root.manager.disable
    logging.disable(logging.NOTSET)
    speaker = notice._Speaker()
    with patch.multiple(notice, _speaker=speaker, PATIENCE=_PATIENCE), patch.object(logger, "propagate", False):
        logger.addHandler(handler)
        try:
            yield
        finally:
            gate.set()
            speaker._speaking.acquire(timeout=PATIENCE)
            logger.removeHandler(handler)
            logging.disable(disabled)
