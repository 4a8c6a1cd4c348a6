"""The runs that pages show. A page puts its run into a queue, and the server prepares the other pages of that run; and each look
at a run is noted, so that the server follows those runs on stores at which somebody looks."""

import json
import os
import time
from pathlib import Path
from queue import SimpleQueue

from ratioscope.ingest.run import Run, open_run

RUNS = "RATIOSCOPE_RUNS"
"""The environment variable: a JSON list of absolute paths."""
ATTEMPT = "RATIOSCOPE_ATTEMPT"
"""The same for the number of the start of the job that pages show; null for all."""
_OPENED: SimpleQueue[str] = SimpleQueue()
_KNOWN: set[str] = set()
_LOOKS: dict[str, float] = {}


def attempt_asked() -> int | None:
    """The start of the job that the server was asked for; None: the run as it went on."""
    known: int | None = json.loads(os.environ.get(ATTEMPT, "null"))
    return known


def opened_run(path: str) -> Run:
    """The run, or what one start of the job recorded of it, as the server was asked."""
    return open_run(Path(path), attempt=attempt_asked())


def run_opened(path: str) -> None:
    """Notes that a page shows this run, so that its other pages are prepared while the reader looks at this one."""
    if path not in _KNOWN:
        _KNOWN.add(path)
        _OPENED.put(path)


def next_opened() -> str:
    """The path of the next run that was opened; waits for one."""
    return _OPENED.get()


def run_looked_at(path: str) -> None:
    """Notes that a page looks at this run now."""
    _LOOKS[path] = time.monotonic()


def on_pages(within: float) -> list[str]:
    """The paths of the runs at which a page looked within so many seconds."""
    now = time.monotonic()
    return [path for path, at in list(_LOOKS.items()) if now - at <= within]
