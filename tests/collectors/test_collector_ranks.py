"""The rank of a process is what its launcher says, so that two ranks of one `Collector(run)` each never share a row."""

import json
import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ratioscope import open_run
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.ranks import in_ray_worker, part_of, rank_told

SCRIPT = """
import sys
from ratioscope import Collector
with Collector(sys.argv[1]) as collector:
    for step in range(2):
        collector.log(step=step, rollout_logprobs=[[-1.0], [-2.0]], old_logprobs=[[-1.5], [-2.0]])
"""


def test_two_ranks_of_torchrun_that_name_no_rank_record_rows_of_their_own(tmp_path: Path) -> None:
    for rank in "01":
        environment = {**os.environ, "RANK": rank, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "a"}
        subprocess.run([sys.executable, "-c", SCRIPT, str(tmp_path / "run")], env=environment, check=True)
    run = open_run(tmp_path / "run")
    assert run.writers["rank"].to_list() == [0, 1]
    assert run.metrics()["mismatch/sequences"].to_list() == [4, 4]
    assert run.sequences()["sequence_id"].n_unique() == 8


SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "8"}


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "5"}, 5),
        ({"RANK": "-1"}, None),
        ({"RANK": "1", **SRUN}, 1),
        ({"OMPI_COMM_WORLD_RANK": "2"}, 2),
        ({"PMIX_RANK": "2"}, 2),
        ({"PMI_RANK": "4"}, 4),
        (SRUN, 3),
        ({**SRUN, "SLURM_STEP_ID": "4294967291"}, None),  # a batch script, which is no task
        ({**SRUN, "SLURM_STEP_NUM_TASKS": "1"}, None),
        ({**SRUN, "RAY_RAYLET_PID": "77"}, None),  # the node's number, which all of its workers inherit
        ({**SRUN, "RAY_RAYLET_PID": "77", "RANK": "9"}, 9),
    ],
)
def test_the_rank_is_what_the_launcher_of_this_process_says(environment: dict[str, str], rank: int | None) -> None:
    assert rank_told(environment) == rank


DRIVER = {"RAY_RAYLET_PID": "77", "RAY_JOB_ID": "01000000", "RAY_JOB_CONFIG_JSON_ENV_VAR": "{}"}


@pytest.mark.parametrize(
    ("environment", "program", "is_worker"),
    [
        ({}, "train.py", False),
        ({"RAY_RAYLET_PID": "77"}, "ray/_private/workers/default_worker.py", True),
        (DRIVER, "train.py", False),  # of a job manager that lets its driver inherit what Ray gave to itself
        (DRIVER, "ray/_private/workers/default_worker.py", True),  # of a cluster that such a driver has started
    ],
)
def test_the_driver_of_a_submitted_job_is_no_worker(
    environment: dict[str, str], program: str, is_worker: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*DRIVER, "RAY_WORKER_ID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "orig_argv", ["python", program, "--node-ip-address=192.0.2.1"])
    assert in_ray_worker() is is_worker
    assert part_of(None) == (f"ray:{environment.get('RAY_JOB_ID', '')}" if is_worker else None)


def test_a_rank_that_is_given_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "5")
    with Collector(tmp_path / "run", rank=2) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])
    (log,) = (tmp_path / "run" / "commits").iterdir()
    assert json.loads(log.read_text().splitlines()[0])["rank"] == 2


def _record(run: Path) -> None:
    with Collector(run) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]])


def test_children_of_multiprocessing_that_nobody_numbered_record_rows_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one")
    children = [multiprocessing.get_context("spawn").Process(target=_record, args=(tmp_path / "run",)) for _ in "ab"]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert open_run(tmp_path / "run").sequences()["sequence_id"].n_unique() == 2
