"""A driver of trainers' processes, run in a process of its own, under `ratioscope run` or not."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1]
OF_RAY = {
    "RAY_AUTH_MODE": "disabled",  # else Ray writes a token to the user's home
    "RAY_memory_monitor_refresh_ms": "0",  # else Ray kills these small workers when other programs fill the memory
}


def launch(module: str, *arguments: str, recorded: Path | None) -> str:
    """Runs a module as a script; what it printed. recorded: the run folder, or None for a plain run."""
    path = os.pathsep.join((str(TESTS), *(os.path.abspath(path) for path in sys.path if path)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RATIOSCOPE")}
    environment = kept | {"PYTHONPATH": path, **OF_RAY}
    under = [] if recorded is None else [sys.executable, "-m", "ratioscope", "run", "--out", str(recorded), "--"]
    command = [*under, sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def two_ranks(module: str, folder: Path, run: Path | None, settings: Mapping[str, Any]) -> list[Any]:
    """Runs `module` as two ranks, each told FOLDER RUN RANK SETTINGS; what each of them left in FOLDER/rank-N.pt."""
    path = os.pathsep.join((str(TESTS), *(os.path.abspath(path) for path in sys.path if path)))
    told = {"PYTHONPATH": path, "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "RATIOSCOPE_LAUNCH": "two ranks"}
    command = [sys.executable, "-m", module, str(folder), "" if run is None else str(run)]
    with ExitStack() as stack:
        ranks = [
            stack.enter_context(
                subprocess.Popen(
                    [*command, str(rank), json.dumps(settings)],
                    env={**os.environ, **told, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    stderr=subprocess.PIPE,
                    text=True,
                )
            )
            for rank in range(2)
        ]
        for process in ranks:
            stack.callback(process.kill)  # the other, if one of them fails
        for process in ranks:
            _, errors = process.communicate(timeout=600)
            assert process.returncode == 0, errors[-3000:]
    return [importlib.import_module("torch").load(folder / f"rank-{rank}.pt", weights_only=False) for rank in range(2)]
