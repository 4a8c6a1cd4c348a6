"""The program of a writer's process: reads frames, writes rows and reports their fate. writer_process.py starts it.

It ends when it is told to close, or when the trainer's process has ended and everything that came from it is written. It was
started deaf to signals. After the trainer's end it writes on for as long as it makes progress.
"""

from __future__ import annotations

import json
import logging
import os
import queue
import select
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ratioscope import process
from ratioscope.metrics.engines.choice_of_loops import loops_for
from ratioscope.pandas_guard import keep_pandas_out

from ..batch.batch_rows import carried_schema
from ..batch.records import SCHEMA
from ..process.counts import Dropped, Ledger, reason_of
from ..process.trainer_process import trainer_process
from .frames import read_frame
from .live_scalars import LiveScalars
from .queue_items import Backlog, void
from .task import WriterTask
from .writer import Writer
from .writer_thread import IDLE_SECONDS

PATIENCE_SECONDS = 60.0
"""A process whose trainer has ended, and that has written nothing for so long, ends."""
_LOOK_SECONDS = 1.0
_AT_WORK_SECONDS = 0.02  # processor time between two looks
_NICE = 5


def main() -> None:
    """Reads from standard input, replies on standard output."""
    keep_pandas_out()
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.nice(_NICE)
    replies = _Replies(os.dup(1))
    os.dup2(2, 1)  # so that a library that prints does not write among the replies
    try:
        _serve(replies)
    except BaseException as error:
        replies.send(said=f"the writer's process failed: {reason_of(error)}")
    os._exit(0)  # without waiting for the thread that waits for a frame


def _serve(replies: _Replies) -> None:
    start = read_frame(0)
    if start is None:
        return
    logging.getLogger("ratioscope").addHandler(_Said(replies))
    program = _Program(WriterTask(**start[0]), replies)
    replies.send(ready=os.getpid())
    threading.Thread(target=program.read, name="frames", daemon=True).start()
    program.run()


class _Replies:
    """Sends lines of JSON to the trainer's process. Errors are ignored, for the trainer may have ended."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor, self._lock = descriptor, threading.Lock()

    def send(self, **reply: Any) -> None:
        line = json.dumps(reply).encode() + b"\n"
        with self._lock:
            try:
                while line:
                    line = line[os.write(self._descriptor, line) :]
            except OSError:
                pass


class _Said(logging.Handler):
    """Sends log records to the trainer's process, which logs them."""

    def __init__(self, replies: _Replies) -> None:
        super().__init__()
        self._replies = replies

    def emit(self, record: logging.LogRecord) -> None:
        self._replies.send(said=record.getMessage())


class _AtWork:
    """Tells if this process has computed since the last look. A process that waits for a hung disk has not."""

    def __init__(self) -> None:
        self._before = time.process_time()

    def since_last(self) -> bool:
        now = time.process_time()
        used, self._before = now - self._before, now
        return used > _AT_WORK_SECONDS


class _Program:
    """The two threads of the process: one reads frames, the other writes."""

    def __init__(self, task: WriterTask, replies: _Replies) -> None:
        self._replies = replies
        self._frames: queue.SimpleQueue[tuple[dict[str, Any], Any, Callable[[], None]]] = queue.SimpleQueue()
        self._backlog = Backlog(task.queue_batches, task.queue_bytes)
        self._ledger = Ledger(lambda post, values: replies.send(post=post, of=values))
        live = LiveScalars(task.dialect, self._tell_scalars) if task.scalars else None
        self._writer = Writer(
            lambda: task.sink(live, loops_for, lambda root: replies.send(recording_into=root)),
            self._ledger,
            lambda text: replies.send(said=text),
            (lambda: 0.0) if task.waits else (lambda: self._backlog.pressure),
            task.writer_bytes,
            task.steps_at_once,
        )

    def read(self) -> None:
        """Reads frames until the trainer closes the pipe or has ended. Then ends this process once it makes no progress."""
        trainer = trainer_process()
        named = process.Process(process.host_name(), trainer.pid, trainer.started, process.pid_namespace())
        at_work = _AtWork()
        while True:
            if not select.select([0], [], [], _LOOK_SECONDS)[0]:
                if at_work.since_last():
                    self._replies.send(busy=True)
                if named.life(process.here()) == "gone":
                    break
                continue
            frame = read_frame(0)
            if frame is None:
                break
            message, body = frame
            self._frames.put((message, body, self._backlog.hold(len(body)) if body else void))
        self._frames.put(({"do": "end"}, b"", void))
        idle_since = time.monotonic()
        while time.monotonic() - idle_since < PATIENCE_SECONDS:
            time.sleep(_LOOK_SECONDS)
            if at_work.since_last():
                idle_since = time.monotonic()
        os._exit(1)

    def run(self) -> None:
        """Handles frames, one after the other, until the last."""
        while True:
            message, body, settled = self._next()
            try:
                if self._is_last(message, body, settled):
                    return
                if self._frames.empty():
                    self._writer.catch_up()
            except Exception as error:  # expected failures are counted elsewhere
                if self._ledger.fail("writer"):
                    self._replies.send(said=f"the writer failed; it goes on with the next batch: {reason_of(error)}")
                if message["do"] == "finish":
                    self._replies.send(finished=message["number"], saved=False)

    def _next(self) -> tuple[dict[str, Any], Any, Callable[[], None]]:
        """The next frame; a message to write what waits, if none comes for long."""
        with suppress(queue.Empty):
            if (wait := self._writer.unsaid_for) is not None:
                return self._frames.get(timeout=max(0.0, wait))
        self._writer.say_taken()
        try:
            return self._frames.get(timeout=IDLE_SECONDS)
        except queue.Empty:
            return {"do": "idle"}, b"", void

    def _tell_scalars(self, step: int, values: Mapping[str, float]) -> None:
        self._replies.send(scalars=values, step=step)

    def _is_last(self, message: Mapping[str, Any], body: Any, settled: Callable[[], None]) -> bool:
        writer, ledger, replies = self._writer, self._ledger, self._replies
        match message:
            case {"do": "rows", "step": step, "number": number}:
                replies.send(settled=number)
                rows = pa.ipc.read_record_batch(pa.py_buffer(body), SCHEMA)
                ledger.offer(rows.num_rows)
                writer.take(step, rows, settled)
            case {"do": "reading", "step": step, "name": name}:
                try:
                    writer.take_reading(step, name, pa.ipc.read_record_batch(pa.py_buffer(body), carried_schema(name)))
                finally:
                    settled()
            case {"do": "dropped", "dropped": values}:
                ledger.refuse(Dropped(*values))
                writer.say_dropped()
            case {"do": "say", "entries": entries}:
                writer.say(entries)
            case {"do": "finish", "number": number}:
                writer.finish(lambda saved: replies.send(finished=number, saved=saved))
            case {"do": "begin"}:
                writer.begin()
            case {"do": "close"}:
                writer.close()
                return True
            case {"do": "end"}:
                writer.finish(void)
                return True
            case _:
                writer.finish(void)
        return False
