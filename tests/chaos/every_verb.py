"""Every verb on one run, in a process that may take so much memory and no more: `python -m chaos.every_verb RUN MEGABYTES`.

Prints a line of JSON for each verb: its name, its exit code, seconds, and the most megabytes that the process has held.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

VERBS = (
    ("info",), ("metrics",), ("diagnose",), ("check", "--exact"), ("diff", "."), ("watch", "--every", "0.2"), ("corrections",),
    ("verify", "--deep"), ("dashboard",), ("report", "--output", "../report.html"), ("bundle", "--output", "../bundle.zip"),
    ("bundle", "--output", "../pages"),
    ("export", "--output", "../export.parquet"), ("export", "--level", "token", "--output", "../tokens.csv"),
    ("sync", "--to", "prometheus:../run.prom"), ("push", "memory://pushed"),
    ("index", "--workers", "1"),
    ("note", "restarted node 7"), ("baseline", "save", "RUN", "as", "floor"), ("baseline", "pin", "RUN"),
    ("repair", "--writers-ended"), ("compact", "--writers-ended"),
    ("prune", "--keep-steps", "1", "--yes", "--writers-ended"),
)  # fmt: skip
"""dashboard: what its server reads of a run before anybody asks, and what its first page shows. "." and "../" begin a path.
RUN: the run, where it is not the first word."""
QUICK = tuple(
    verb for verb in VERBS if verb[0] not in ("report", "bundle", "export", "dashboard", "corrections", "diff", "watch")
)
WATCHED_SECONDS = 1.0
"""Ctrl+C ends the watch of a run that does not end, after so long."""


def main(root: str, megabytes: int, verbs: tuple[tuple[str, ...], ...] = VERBS) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (megabytes << 20, megabytes << 20))
    os.environ["XDG_CONFIG_HOME"] = str(Path(root).parent / "config")  # baselines are saved there
    for verb in verbs:
        began = time.monotonic()
        code = _done(verb, Path(root))
        print(json.dumps([verb[0], code, round(time.monotonic() - began, 1), _most()]), flush=True)


def _done(verb: tuple[str, ...], root: Path) -> int:
    from ratioscope.app.cli import main as ratioscope

    if verb[0] == "dashboard":
        return _shown(root)
    more = [_placed(part, root) for part in verb[1:]]
    if "RUN" in more:
        return ratioscope([verb[0], *(str(root) if part == "RUN" else part for part in more)])
    if verb[0] == "watch":
        return _watched([verb[0], str(root), *more])
    return ratioscope([verb[0], str(root), *more])


def _placed(part: str, root: Path) -> str:
    """The word, with a path in it that begins with a dot below the run."""
    logger, colon, place = part.rpartition(":")
    return f"{logger}{colon}{root / place}" if place == "." or place.startswith("..") else part


def _watched(words: list[str]) -> int:
    """The exit code of a watch; 0 if only Ctrl+C ended it."""
    from ratioscope.app.cli import INTERRUPTED
    from ratioscope.app.cli import main as ratioscope

    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, WATCHED_SECONDS)
    try:
        code = ratioscope(words)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    return 0 if code == INTERRUPTED else code


def _shown(root: Path) -> int:
    """What the server reads of the runs below a folder, and of one that is opened."""
    from ratioscope.app.dashboard.model.served_folder import Summaries
    from ratioscope.app.dashboard.model.view import prefetch, warm
    from ratioscope.app.pages.pages import PAGES
    from ratioscope.ingest.files.run_tree import runs_below
    from ratioscope.process import here

    summaries = Summaries()
    for path in map(str, runs_below(root.parent).runs):
        summaries.read_some([path], 60.0)
        summaries.state(path, here(), time.time())
        warm([path])
        prefetch(path, lambda shown: (wanted for page in PAGES for wanted in page.ahead(shown, "light")))
    return 0


def _most() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), QUICK if sys.argv[3:] == ["quick"] else VERBS)
