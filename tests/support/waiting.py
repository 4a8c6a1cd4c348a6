"""Waiting for what another process does."""

import threading
import time
from collections.abc import Callable

PATIENCE = 120.0


def wait_until(is_so: Callable[[], object]) -> None:
    """Looks again and again, for as long as a test may take."""
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end
        threading.Event().wait(0.02)
