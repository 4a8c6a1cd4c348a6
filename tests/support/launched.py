"""A driver of trainers' processes, run in a process of its own, under `ratioscope run` or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def launch(module: str, *arguments: str, recorded: Path | None) -> str:
    """Runs a module as a script; what it printed. recorded: the run folder, or None for a plain run."""
    path = os.pathsep.join((str(TESTS), *(os.path.abspath(path) for path in sys.path if path)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RATIOSCOPE")}
    environment = kept | {"PYTHONPATH": path, "RAY_AUTH_MODE": "disabled"}  # else Ray writes a token to the user's home
    under = [] if recorded is None else [sys.executable, "-m", "ratioscope", "run", "--out", str(recorded), "--"]
    command = [*under, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout
