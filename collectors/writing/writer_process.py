"""WriterProcess: the writer's process, seen from the writer's thread of the trainer's process.

The process is a new program and not a fork, so it shares neither memory nor the interpreter's lock with training. It is no child
of the trainer, which may wait for its children or end them. It leads a session of its own, so that a signal to the trainer's
group does not reach it. It writes what it was given even if the trainer has ended, in whatever way.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, astuple
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope import version

from ..process.counts import Dropped, Ledger, reason_of
from ..process.notice import warn
from ..process.trainer_process import TrainerProcess, as_variable
from .frames import PipeEnd, write_frame
from .queue_items import void
from .task import WriterTask

ENDED = "the writer's process ended"
PROCESS = "writer's process"
"""The failure under which a writer's process is counted that ended without being told to."""
START_SECONDS = 60.0
_PIPE_BYTES = 1 << 20
_PROGRAM = """import os, signal, sys
for name in {ignored!r}:
    signal.signal(name, signal.SIG_IGN)
if os.fork():
    os._exit(0)
sys.path[:] = {path!r}
from ratioscope.collectors.writing.writer_program import main
main()"""
_IGNORED = tuple(
    map(int, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2))
)
"""Signals that the writer ignores from its birth: a second later, when its packages are imported, one may have ended it."""


class WriterProcess:
    """Starts the process; OSError if it cannot be started.

    task: what it writes, and where. process: the trainer's. scalars: called with a step and its metrics as soon as they are
    made. progress: called at every message from the process. settled_in: called with the folder that it records into.
    """

    def __init__(
        self,
        task: WriterTask,
        process: TrainerProcess,
        ledger: Ledger,
        scalars: Callable[[int, dict[str, float]], None],
        progress: Callable[[], None],
        settled_in: Callable[[str], None],
    ) -> None:
        self._ledger, self._scalars, self._progress, self._settled_in = ledger, scalars, progress, settled_in
        self._numbers = count()
        self._unsettled: dict[int, Callable[[], None]] = {}
        self._unfinished: dict[int, Callable[[bool], None]] = {}
        self._sent = 0
        self._known = 0
        self._has_closed = False
        self._is_ready, self._is_over = threading.Event(), threading.Event()
        self._losing = threading.Lock()
        to_it, from_it = _started(task, process)
        self._open = {"to": to_it, "from": from_it}
        try:
            threading.Thread(target=self._listen, args=(from_it,), name="ratioscope-replies", daemon=True).start()
        except (RuntimeError, MemoryError) as error:  # a limit on threads is reached
            self.disinherit()
            raise OSError(f"no thread can listen to the writer's process: {error}") from error
        if not self._is_ready.wait(START_SECONDS) or self._is_over.is_set():
            self.let_go()
            raise OSError("the writer's process did not begin")

    @property
    def is_gone(self) -> bool:
        return self._is_over.is_set()

    def begin(self) -> None:
        self._send({"do": "begin"})

    def take(self, step: int, rows: pa.RecordBatch, settled: Callable[[], None]) -> None:
        number = next(self._numbers)
        self._unsettled[number] = settled
        self._sent += rows.num_rows
        self._send({"do": "rows", "step": step, "number": number}, rows.serialize())
        if self.is_gone:
            self._lose()

    def take_reading(self, step: int, name: str, rows: pa.RecordBatch) -> None:
        self._send({"do": "reading", "step": step, "name": name}, rows.serialize())

    def catch_up(self) -> None:
        """Does nothing: the process knows when nothing waits for it."""

    def say(self, entries: Sequence[Mapping[str, Any]]) -> None:
        self._send({"do": "say", "entries": list(entries)})

    def say_dropped(self) -> None:
        for dropped in self._ledger.newly_dropped():
            self._send({"do": "dropped", "dropped": astuple(dropped)})

    def finish(self, done: Callable[[bool], None]) -> None:
        self.say_dropped()
        number = next(self._numbers)
        self._unfinished[number] = done
        self._send({"do": "finish", "number": number})
        if self.is_gone:
            self._lose()

    def close(self) -> None:
        self.say_dropped()
        self._has_closed = True
        self._send({"do": "close"})
        self._is_over.wait()
        self.let_go()

    def let_go(self) -> None:
        """Closes our end of the pipe to the process, which then writes what it has and ends. Only the thread that sends may
        call it: another thread might close the descriptor while a frame is written to it, and the rest of the frame would go
        to whatever file of the trainer gets the same number. The losses of an ended process are counted when this returns.
        """
        self._close("to")
        if self.is_gone:
            self._lose()

    def disinherit(self) -> None:
        """Closes both ends: in a forked child, because they belong to its parent."""
        self._close("to")
        self._close("from")

    def _close(self, end: str) -> None:
        if (ours := self._open.pop(end, None)) is not None:
            ours.close()

    def _send(self, message: Mapping[str, Any], body: Any = b"") -> None:
        if not self._is_over.is_set():
            try:
                write_frame(self._open["to"].write, message, body)
            except OSError:  # the process has ended: the listening thread counts what is lost
                self._is_over.wait()

    def _listen(self, replies: PipeEnd) -> None:
        with suppress(OSError):  # the program closed it meanwhile
            for line in replies.lines():
                try:
                    self._hear(json.loads(line))
                except Exception as error:
                    self._ledger.fail("writer")
                    warn("a reply of the writer's process could not be read: %s", reason_of(error))
                self._progress()
        self._close("from")
        if not self._has_closed:
            self._ledger.fail(PROCESS)
        self._is_over.set()
        self._is_ready.set()
        self._lose()

    def _hear(self, reply: Mapping[str, Any]) -> None:
        match reply:
            case {"post": post, "of": values}:
                self._post(post, values)
            case {"settled": number}:
                self._unsettled.pop(number, void)()
            case {"finished": number, "saved": saved}:
                self._unfinished.pop(number, void)(saved)
            case {"said": text}:
                warn("%s", text)
            case {"scalars": values, "step": step}:
                self._scalars(step, values)
            case {"recording_into": root}:
                self._settled_in(root)
            case {"ready": _}:
                self._is_ready.set()

    def _post(self, post: str, values: list[Any]) -> None:
        if post == "fail":
            self._ledger.fail(*values)
            return
        if post == "drop":
            dropped = Dropped(*values)
            self._known += dropped.sequences
            self._ledger.drop(dropped, is_logged=True)
            return
        self._known += values[0]
        {"write": self._ledger.write, "leave_out": self._ledger.leave_out}[post](*values)

    def _lose(self) -> None:
        """Counts the rows that the ended process had not reported as written as lost, and wakes all who wait for them.

        The listening thread calls it, and the thread that sends whatever was added meanwhile.
        """
        with self._losing:
            lost, self._sent = self._sent - self._known, self._known
            unsettled, unfinished = _taken(self._unsettled), _taken(self._unfinished)
            if lost > 0:
                self._ledger.drop(Dropped(None, ENDED, "", lost, 0))
        for settled in unsettled:
            settled()
        for done in unfinished:
            done(False)


def _started(task: WriterTask, process: TrainerProcess) -> tuple[PipeEnd, PipeEnd]:
    """Starts the program; our ends of the pipes to it and from it. None stays open where it cannot be started.

    The program may close all descriptors meanwhile, as a daemon does at its start. So ends are known by what they are at once.
    """
    with ExitStack() as ours, ExitStack() as theirs:
        from_it, its_output = _pipe()
        ours.callback(from_it.close)
        theirs.callback(its_output.close)
        its_input, to_it = _pipe()
        ours.callback(to_it.close)
        theirs.callback(its_input.close)
        _widen(to_it.descriptor)
        program = _PROGRAM.format(
            ignored=_IGNORED, path=[str(Path(version.__file__).parent.parent), *filter(None, sys.path)]
        )
        if not (its_input.is_ours() and its_output.is_ours()):
            raise OSError("the pipes to the writer's process were closed by the program")
        with (
            subprocess.Popen(
                [sys.executable, "-I", "-S", "-B", "-c", program],
                stdin=its_input.descriptor,
                stdout=its_output.descriptor,
                stderr=subprocess.DEVNULL,  # a program that reads the trainer's output to its end must not wait for the writer
                start_new_session=True,
                env={**os.environ, **as_variable(process), "RATIOSCOPE_RUN": ""},
            ) as first
        ):  # it starts the writer and ends
            pass
        if first.returncode:
            raise OSError(f"the writer's process ended at its start with {first.returncode}")
        write_frame(to_it.write, asdict(task))
        ours.pop_all()  # from here on they stay open
    return to_it, from_it


def _pipe() -> tuple[PipeEnd, PipeEnd]:
    """A new pipe: the end to read from, and the end to write to."""
    reading, writing = os.pipe()
    return PipeEnd.of(reading), PipeEnd.of(writing)


def _widen(descriptor: int) -> None:
    """Asks for a larger pipe. A pipe of the usual size works too."""
    try:
        import fcntl

        fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
    except (OSError, AttributeError):
        pass


def _taken(waiting: dict[int, Any]) -> list[Any]:
    return [waiting.pop(number) for number in list(waiting)]
