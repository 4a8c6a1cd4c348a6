"""A server that stops answering for good is ended by another process, which says so.

Threads that wait for each other's locks, Python's own among them, answer nobody, and heed no Ctrl+C. A process of its own can
still tell: the server gives it a sign of life every second, see watcher.py.
"""

import asyncio
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile

from ratioscope.ingest.files.cache_folder import cache_folder

from ..model.at_work import SCRIPTS

WATCHER = Path(__file__).with_name("watcher.py")
EVERY = 1.0
SILENT = 120.0
"""Seconds without a sign after which the server is looked at. On a machine with 15 busy programs a core it is silent for some."""
GOING_ON, WAITING = b".", b"w"
"""Signs of life. WAITING: scripts are at work, and none has begun or ended since the last sign."""
FOUND = "dashboard-hang.txt"
"""Beside the statistics in the user's cache."""


@asynccontextmanager
async def watched() -> AsyncGenerator[None]:
    """While it is open, another process is told that this one answers; none where none can be started."""
    beating = None
    with suppress(OSError, AttributeError):  # no process to be had; no such signal on this system
        beating = asyncio.create_task(_beat(_started()))
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()


def _started() -> int:
    """The end of a pipe that the watcher listens to, once it runs."""
    threads = TemporaryFile()  # where each thread stands is written there by a signal, which needs no lock of Python's
    faulthandler.register(signal.SIGUSR2, file=threads)
    folder = cache_folder()
    place = "" if folder is None else str(folder.parent / FOUND)
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    arguments = [str(os.getpid()), str(threads.fileno()), place, str(SILENT)]
    try:  # -I: of the folder it is started in, and of the user's, it imports nothing
        command = [sys.executable, "-I", str(WATCHER), *arguments]
        _WATCHERS.append(subprocess.Popen(command, stdin=told, pass_fds=[threads.fileno()]))
    finally:
        os.close(told)
    return telling


async def _beat(telling: int) -> None:
    before: list[object] = []
    try:
        while True:
            scripts = list(SCRIPTS.values())
            with suppress(BlockingIOError):
                os.write(telling, WAITING if scripts and scripts == before else GOING_ON)
            before = scripts
            await asyncio.sleep(EVERY)
    except BrokenPipeError:  # somebody has ended the watcher
        return
    finally:
        os.close(telling)


_WATCHERS: list[subprocess.Popen[bytes]] = []
"""Kept, for Python warns of a process that nobody waits for; each ends with the pipe."""
