"""A second process ends a server that has stopped answering for good, and reports it.

Threads in a deadlock, perhaps with Python's own lock, answer nobody and ignore Ctrl+C. A second process can still report it: the
server sends it a sign of life every second, see watcher.py.
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

from ...pages.running_scripts import SCRIPTS

WATCHER = Path(__file__).with_name("watcher.py")
EVERY = 1.0
SILENT = 120.0
"""Seconds without a sign of life after which the watcher examines the server. With 15 busy programs a core, signs come seconds
apart."""
GOING_ON, WAITING = b".", b"w"
"""Signs of life. WAITING: scripts are at work, and none has begun or ended since the last sign."""
FOUND = "dashboard-hang.txt"
"""The file for the threads' stacks, beside the statistics in the user's cache."""


@asynccontextmanager
async def watched() -> AsyncGenerator[None]:
    """Sends signs of life to a watcher process until the context ends; without one if it cannot be started."""
    beating = None
    with suppress(OSError, AttributeError):  # no process can be started, or the system lacks the signal
        beating = asyncio.create_task(_beat(_started()))
    try:
        yield
    finally:
        if beating is not None:
            beating.cancel()


def _started() -> int:
    """Starts the watcher. Returns the end of a pipe that it reads signs of life from."""
    threads = TemporaryFile()  # a signal handler writes the stacks of all threads into it, without Python's lock
    faulthandler.register(signal.SIGUSR2, file=threads)
    folder = cache_folder()
    place = "" if folder is None else str(folder.parent / FOUND)
    told, telling = os.pipe()
    os.set_blocking(telling, False)
    arguments = [str(os.getpid()), str(threads.fileno()), place, str(SILENT)]
    try:  # -I: it imports no module of the working folder or of the user's folder
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
    except BrokenPipeError:  # the watcher was killed
        return
    finally:
        os.close(telling)


_WATCHERS: list[subprocess.Popen[bytes]] = []
"""The started watchers, kept because Python warns of a process that nobody waits for. Each ends with the pipe."""
