"""The engine of one machine: spawned processes, each with one task at a time, so that a process that dies names its task."""

import os
import signal
from collections.abc import Iterable
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess

import pyarrow as pa

from ratioscope.pandas_guard import keep_pandas_out

from .task import IndexTask, TaskOutcome, TaskResult, carried_out

_SPAWN = get_context("spawn")
"""Never fork: a child of a process that has used polars hangs."""
_PATIENCE = 5.0
"""Seconds that a process gets to end before it is killed."""


@dataclass(frozen=True)
class _Worker:
    process: SpawnProcess
    pipe: Connection
    """Our end of the pipe to the process."""


@dataclass
class Processes:
    """Worker processes. They start when they are needed, and one that died is replaced."""

    capacity: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    """Most processes that run at a time."""
    _idle: list[_Worker] = field(default_factory=list)
    """Processes that wait for a task."""
    _busy: dict[Connection, tuple[_Worker, IndexTask]] = field(default_factory=dict)
    """Pipe of a process at work -> the process and its task."""

    def start(self, task: IndexTask) -> None:
        worker = self._idle.pop() if self._idle else _started()
        self._busy[worker.pipe] = worker, task
        try:
            worker.pipe.send(task)
        except OSError:  # it died while it was idle; `ended` finds its pipe closed
            return

    def ended(self) -> Iterable[TaskOutcome]:
        return [self._outcome(pipe) for pipe in wait(list(self._busy)) if isinstance(pipe, Connection)]

    def close(self) -> None:
        every = [*self._idle, *(worker for worker, _ in self._busy.values())]
        self._idle, self._busy = [], {}
        for worker in every:
            worker.process.terminate()
        for worker in every:
            worker.process.join(_PATIENCE)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.pipe.close()
            worker.process.close()

    @property
    def pids(self) -> list[int]:
        """The processes that are there now."""
        every = [*self._idle, *(worker for worker, _ in self._busy.values())]
        return [worker.process.pid for worker in every if worker.process.pid is not None]

    def _outcome(self, pipe: Connection) -> TaskOutcome:
        worker, task = self._busy.pop(pipe)
        try:
            answer: TaskResult | str = pipe.recv()
        except (EOFError, OSError):
            worker.process.join(_PATIENCE)
            code = worker.process.exitcode
            pipe.close()
            return TaskOutcome(task, None, f"its process ended, {_ending(code)}")
        self._idle.append(worker)
        return TaskOutcome(task, None, answer) if isinstance(answer, str) else TaskOutcome(task, answer)


def _ending(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}{'; memory may be short' if -code == signal.SIGKILL else ''}"
    return f"with exit code {code}"


def _started() -> _Worker:
    own, others = _SPAWN.Pipe()
    process = _SPAWN.Process(target=_work, args=(others,), name="ratioscope index", daemon=True)
    process.start()
    others.close()
    return _Worker(process, own)


def _work(pipe: Connection) -> None:
    """The life of a worker: it ends when its caller closes the pipe, or dies."""
    keep_pandas_out()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the caller ends its workers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    pa.set_cpu_count(1)
    while True:
        try:
            task = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            answer: TaskResult | str = carried_out(task)
        except Exception as error:  # whatever a step raises: the caller tries it again, and names it
            answer = f"{type(error).__name__}: {error}"
        try:
            pipe.send(answer)
        except OSError:
            return
