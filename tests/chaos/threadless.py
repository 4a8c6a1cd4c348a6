"""No thread, or no process, can be started for a random stretch of a run, as where a limit on processes is reached.

The limit binds no process of root, so that the calls which start a thread or a process raise what they raise at the limit. The
writer's process ends now and then meanwhile, so that another is wanted.
"""

from __future__ import annotations

import _thread
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process import notice
from ratioscope.collectors.writing.writer_process import WriterProcess

from .figures import Figures
from .logged import logged
from .processes import PATIENCE
from .trainer_side import STEPS, TrainerSide, begin, examine


@dataclass
class Limits:
    """What can be started now, and the writers' processes that were."""

    threads: bool = True
    processes: bool = True
    pids: list[int] = field(default_factory=list)
    refused: dict[str, int] = field(default_factory=lambda: {"threads": 0, "processes": 0})


def threadless(folder: Path, *, runs: int, seed: int) -> Figures:
    """As many runs; a third of them without processes, a third without threads, a third without either, for a while or from first
    to last."""
    figures, chance = Figures("No thread or process can be started"), random.Random(seed)
    begin(figures)
    figures.add(threads_refused=0, processes_refused=0, writers_killed=0)
    figures.remarks.append("Calls that raise as they do at the limit stand for the limit, which does not bind root")
    for number in range(runs):
        with patch.dict(os.environ, {"RATIOSCOPE_WRITER": "process"}):
            _record(figures, folder / str(number), seed, chance, kinds=number % 3)
    return figures


def _record(figures: Figures, root: Path, seed: int, chance: random.Random, *, kinds: int) -> None:
    """One run. It is bound in steps `first` to `last`; -1: before the collector is made, STEPS: also as it is closed."""
    side = TrainerSide()
    first = -1 if chance.random() < 0.3 else chance.randrange(STEPS)
    last = chance.randint(first + 1, STEPS + 1)
    with limited(Limits()) as limits:

        def bind(step: int) -> None:
            is_bound = first <= step < last
            limits.threads, limits.processes = not (is_bound and kinds != 0), not (is_bound and kinds != 1)

        bind(-1)
        collector = side.call(lambda: Collector(root, name="threadless", rank=0, attempt=0))
        assert collector is not None
        for step in range(STEPS):
            bind(step)
            _train(side, collector, step, seed)
            if chance.random() < 0.3:
                side.flush(collector, step, PATIENCE)
            if first <= step < last and chance.random() < 0.3:
                kill_writers(limits)
        bind(STEPS)
        side.flush(collector, STEPS - 1, PATIENCE)
        closed = side.call(lambda: collector.close(PATIENCE), PATIENCE)
    name = f"run {root.name}, bound from step {first} to {last}, {limits}"
    figures.demand(bool(closed), f"{name}: close did not come to its end")
    figures.add(
        **{f"{kind}_refused": times for kind, times in limits.refused.items()}, writers_killed=len(ended(limits))
    )
    # what a process had on disk when it was killed, and had not told of, is there and counts as dropped
    is_settled = not ended(limits) and any(root.glob("commits/*"))
    examine(figures, side, collector, root, seed, name=name, is_settled=is_settled)


def _train(side: TrainerSide, collector: Collector, step: int, seed: int) -> None:
    side.call(lambda: collector.log(step=step, **logged(seed, step)))
    side.call(lambda: collector.event("weight_sync", step))


def kill_writers(limits: Limits) -> None:
    """Ends the writers' processes that are there; what is left of each in `pids` is minus its number."""
    for pid in limits.pids:
        if pid > 0:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    limits.pids = [-abs(pid) for pid in limits.pids]


def ended(limits: Limits) -> list[int]:
    """Those that were killed."""
    return [pid for pid in limits.pids if pid < 0]


@contextmanager
def limited(limits: Limits) -> Iterator[Limits]:
    """In here threads and processes can be started as the limits say, and the writers' processes are known."""

    def refuses(kind: str, error: OSError | RuntimeError, real: Callable[..., Any]) -> Callable[..., Any]:
        def start(*values: Any, **named: Any) -> Any:
            if not getattr(limits, kind):
                limits.refused[kind] += 1
                raise error
            return real(*values, **named)

        return start

    def hear(self: WriterProcess, reply: Mapping[str, Any]) -> None:
        if "ready" in reply:
            limits.pids.append(reply["ready"])
        real_hear(self, reply)

    real_hear = WriterProcess._hear
    no_thread, no_process = (
        RuntimeError("can't start new thread"),
        BlockingIOError(11, "Resource temporarily unavailable"),
    )
    with (
        patch.object(threading.Thread, "start", _method(refuses("threads", no_thread, threading.Thread.start))),
        patch.object(notice, "start_new_thread", refuses("threads", no_thread, _thread.start_new_thread)),
        patch.object(subprocess, "Popen", refuses("processes", no_process, subprocess.Popen)),
        patch.object(WriterProcess, "_hear", hear),
    ):
        yield limits


def _method(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self: function(self)
