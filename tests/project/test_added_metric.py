"""A metric is one place: an entry in metrics/definitions, and every face shows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from support.edge_runs import made
from support.paths import ROOT

FACES = {
    "metrics --json", "metrics --metric", "explain", "report.html", "report.json", "page Charts", "docs",
}  # fmt: skip


def test_a_metric_added_in_its_definition_is_shown_by_every_face(tmp_path: Path) -> None:
    run = made(tmp_path, "stale")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "tests")))}
    command = [sys.executable, "-m", "support.added_metric", str(run), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert set(found) == FACES and all(found.values()), found
