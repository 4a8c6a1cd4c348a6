"""Waiting for what another process does, and a process that has ended."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable

PATIENCE = 120.0


def ended_pid() -> int:
    """The number of a process that is there no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def wait_until(is_so: Callable[[], object]) -> None:
    """Looks again and again, for as long as a test may take."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        threading.Event().wait(0.02)
