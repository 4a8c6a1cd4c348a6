"""A run of W&B's server, read by wandb's own client over HTTP. The server is a stand-in on the loopback."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.wandb_server import KEY, StandIn, serving

from ratioscope import open_run

ROWS: list[dict[str, Any]] = [
    {
        "_step": at,
        "_timestamp": 1.0 * at,
        "training/global_step": at,
        "rollout_corr/k3_kl": at / 1000,
        "actor/entropy": "NaN",
    }
    for at in range(2300)
]


def imported_from(server: StandIn, folder: Path, name: str = "abc") -> subprocess.CompletedProcess[str]:
    """`ratioscope import wandb://` in a process of its own, because wandb starts one that stays."""
    places = {f"WANDB_{kind}": str(folder / kind) for kind in ("DIR", "DATA_DIR", "CACHE_DIR", "CONFIG_DIR")}
    login = {"WANDB_BASE_URL": server.address, "WANDB_API_KEY": KEY, "HOME": str(folder), "WANDB_SILENT": "true"}
    command = [sys.executable, "-m", "ratioscope", "import", f"wandb://team/project/{name}", "-o", str(folder / "run"),
               "--dialect", "verl@0.9.1", "--json"]  # fmt: skip
    environment = os.environ | places | login
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("in_parquet", [0, 1500])
def test_every_row_of_a_run_of_the_server_is_read(in_parquet: int, tmp_path: Path) -> None:
    """From pages of rows, and from the files that the service makes of a run that has ended."""
    with serving(StandIn(ROWS, in_parquet)) as server:
        done = imported_from(server, tmp_path)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout[done.stdout.index("{") :])
    assert said["attempts_begin"] == [] and said["logged_twice"] == 0, "no row is given twice"
    assert (said["steps"], said["values"], said["rejected"]) == (len(ROWS), 2 * len(ROWS), 0)
    pages = [(0, 1000), (1000, 2000), (2000, 2300)]
    assert server.pages == [page for page in pages if page[1] > in_parquet], "the rows of a file are not asked for"
    assert len(server.logins) == 1 and len(server.logins.pop()) > len(KEY)
    run = open_run(tmp_path / "run")
    assert run.metrics()["mismatch/kl_k3"].to_list() == [row["rollout_corr/k3_kl"] for row in ROWS]
    assert all(map(math.isnan, run.logged.filter(name="actor/entropy")["value"]))
    assert KEY not in "".join(path.read_text("latin-1") for path in (tmp_path / "run").rglob("*") if path.is_file())


def test_a_run_that_the_server_has_not_leaves_nothing(tmp_path: Path) -> None:
    with serving(StandIn(ROWS[:3])) as server:
        done = imported_from(server, tmp_path, "other")
    assert done.returncode == 3 and "W&B has no run team/project/other for this login" in done.stderr
    assert not (tmp_path / "run").exists() and KEY not in done.stderr
