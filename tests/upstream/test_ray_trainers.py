"""NeMo-RL in a driver and worker processes of a real local Ray, recorded by `ratioscope run` alone.

Its own RayWorkerGroup, two data-parallel workers with FSDP over Gloo, and their loss run there. Needs ray 2.60 on PYTHONPATH and
a checkout of NVIDIA-NeMo/RL in a folder of SOURCES; skipped otherwise.
"""

from pathlib import Path
from typing import Any

import pytest
from support.launched import launch
from support.sources import root
from support.written_run import commit_lines

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

torch = pytest.importorskip("torch", reason="the trainers run on torch")
pytest.importorskip("ray", reason="the ray package is not importable here")


def test_what_nemo_rls_workers_hold_is_recorded_where_they_run(tmp_path: Path) -> None:
    checks: Any = pytest.importorskip("upstream.nemo_rl_checks")
    root("nemo_rl")
    traces = []
    for name in ("on", "off"):
        recorded = tmp_path / "run" if name == "on" else None
        launch("upstream.nemo_rl_ray", str(tmp_path / name), "{}", recorded=recorded)
        traces.append(torch.load(tmp_path / name / "trace.pt", weights_only=False))
    checks.assert_held(traces[0], tmp_path / "run")
    ranks = {line["rank"] for line in commit_lines(tmp_path / "run") if "rank" in line}
    assert ranks >= {0, 1}
    for trace in traces:
        trace["losses"].sort(key=lambda call: call["data"]["input_ids"].tolist())  # workers' ids of processes differ
    checks.assert_same(*traces)
