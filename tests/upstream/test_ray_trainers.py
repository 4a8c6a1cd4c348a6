"""NeMo-RL in a driver and worker processes of a real local Ray, recorded by `ratioscope run` alone.

Its own RayWorkerGroup, two data-parallel workers with FSDP over Gloo, and their loss run there. Needs ray 2.60 on PYTHONPATH and
a checkout of NVIDIA-NeMo/RL in a folder of SOURCES; skipped otherwise.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.sources import root
from support.written_run import commit_lines

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the trainers run on torch")
pytest.importorskip("ray", reason="the ray package is not importable here")
TESTS = Path(__file__).parents[1]


def run(command: list[str], recorded: Path | None) -> None:
    """Runs a driver of Ray, under `ratioscope run` or not."""
    path = os.pathsep.join((str(TESTS), *(os.path.abspath(path) for path in sys.path if path)))
    kept = {name: value for name, value in os.environ.items() if not name.startswith("RATIOSCOPE")}
    environment = kept | {"PYTHONPATH": path, "RAY_AUTH_MODE": "disabled"}  # else a token is written to the user's home
    under = [] if recorded is None else [sys.executable, "-m", "ratioscope", "run", "--out", str(recorded), "--"]
    done = subprocess.run([*under, *command], env=environment, capture_output=True, text=True, timeout=1800)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


def test_what_nemo_rls_workers_hold_is_recorded_where_they_run(tmp_path: Path) -> None:
    checks: Any = pytest.importorskip("upstream.nemo_rl_checks")
    root("nemo_rl")
    traces = []
    for name in ("on", "off"):
        recorded = tmp_path / "run" if name == "on" else None
        run([sys.executable, "-m", "upstream.nemo_rl_ray", str(tmp_path / name), "{}"], recorded)
        traces.append(torch.load(tmp_path / name / "trace.pt", weights_only=False))
    checks.assert_held(traces[0], tmp_path / "run")
    ranks = {line["rank"] for line in commit_lines(tmp_path / "run") if "rank" in line}
    assert ranks >= {0, 1}
    for trace in traces:
        trace["losses"].sort(key=lambda call: call["data"]["input_ids"].tolist())  # workers' ids of processes differ
    checks.assert_same(*traces)
