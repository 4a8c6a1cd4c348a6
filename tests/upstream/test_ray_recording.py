"""Recording in the workers of a real Ray: of a cluster that the driver starts, of one that runs already, of a submitted job.

Needs an importable ray 2.60 on PYTHONPATH; skipped otherwise. Ray's job server is not run here: what its client posts is handed
to its real job manager.
"""

import importlib
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import ratioscope
from ratioscope.collectors.process.variables import VARIABLES
from ratioscope.collectors.watching import ray_workers
from ratioscope.collectors.watching.hooks import Hook, put_on
from ratioscope.collectors.watching.recording import Recording

pytestmark = [pytest.mark.upstream, pytest.mark.filterwarnings("ignore"), pytest.mark.slow]

ray = pytest.importorskip("ray", reason="the ray package is not importable here")

SCRIPT = """
import json, os, sys, ray

ray.init(logging_level="error", **eval(sys.argv[1]))

@ray.remote
def told():
    from ratioscope.collectors.process import ranks, variables
    names = ["MINE", *variables.VARIABLES]
    return {
        "installed": variables.installed_for,
        "variables": {name: os.environ[name] for name in names if name in os.environ},
        "path": os.environ.get("PYTHONPATH", ""),
        "theirs": getattr(sys, "theirs", None),
        "in_worker": ranks.in_ray_worker(),
    }

told_here = {"driver": told._function()["in_worker"], "runtime_env": dict(ray.get_runtime_context().runtime_env)}
print("TOLD", json.dumps({**ray.get(told.remote()), **told_here}))
"""
TWICE = """
import os, ray

ray.init(logging_level="error", **eval(__import__("sys").argv[1]))

def write(rank, sequence):
    import ratioscope
    with ratioscope.Collector(os.environ["RATIOSCOPE_RUN"], rank=rank) as collector:
        collector.log(step=1, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.0]], sequence_ids=[sequence])

remote = ray.remote(write)
ray.get([remote.remote(rank, f"worker {rank}") for rank in (0, 1)])
write(0, "driver")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a cluster that was started by somebody who does not record."""
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("r")))
    short = Path("/tmp") / f"ray-{os.getpid()}"  # paths of sockets may not be long
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus=2", "--port=0"]
    command += ["--include-dashboard=false", f"--temp-dir={short}", "--disable-usage-stats"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, env=plain(), stdout=log, stderr=log)
    try:
        address = short / "ray_current_cluster"
        deadline = time.monotonic() + 240
        while not address.exists() and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.2)
        if not address.exists():
            pytest.skip(f"ray does not start here: {(folder / 'log').read_text()[-500:]}")
        yield address.read_text().strip()
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(short, ignore_errors=True)


def plain() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in VARIABLES and name != "RAY_ADDRESS"}
    return kept | {"RAY_AUTH_MODE": "disabled"}  # else a token is written to the user's home


def driver(
    folder: Path, script: str, arguments: str = "{}", *, recorded: bool = True, address: str | None = None
) -> str:
    """What the script printed."""
    (folder / "driver.py").write_text(script)
    command = [sys.executable, str(folder / "driver.py"), arguments]
    if recorded:
        command = [sys.executable, "-m", "ratioscope", "run", "--out", str(folder / "run"), "--", *command]
    environment = plain() | ({"RAY_ADDRESS": address} if address else {})
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=360)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def told(printed: str) -> dict[str, Any]:
    (line,) = (line for line in printed.splitlines() if line.startswith("TOLD "))
    found: dict[str, Any] = json.loads(line.removeprefix("TOLD "))
    return found


def test_workers_of_a_cluster_that_the_driver_starts_record_and_its_runtime_environment_is_the_users(
    tmp_path: Path,
) -> None:
    found = told(driver(tmp_path, SCRIPT, '{"num_cpus": 2, "include_dashboard": False}'))
    assert found["installed"] == [str(tmp_path / "run")] and found["runtime_env"] == {}


def test_workers_of_a_running_cluster_record(cluster: str, tmp_path: Path) -> None:
    asked = '{"runtime_env": {"env_vars": {"MINE": "1", "RATIOSCOPE_TEXT": "ids"}}}'
    found = told(driver(tmp_path, SCRIPT, asked, address=cluster))
    assert found["installed"] == [str(tmp_path / "run")] and str(ray_workers.BOOTSTRAP) not in found["path"]
    assert found["variables"]["RATIOSCOPE_RUN"] == str(tmp_path / "run") and found["variables"]["RATIOSCOPE_LAUNCH"]
    assert found["variables"]["MINE"] == "1" and found["variables"]["RATIOSCOPE_TEXT"] == "ids"  # the user's word


def test_a_driver_that_does_not_record_forwards_nothing(cluster: str, tmp_path: Path) -> None:
    found = told(driver(tmp_path, SCRIPT, address=cluster, recorded=False))
    assert found["installed"] == [] and found["variables"] == {} and found["runtime_env"] == {}


@pytest.mark.parametrize(
    "asked",
    [
        """{"runtime_env": {"worker_process_setup_hook": lambda: setattr(sys, "theirs", "ran")}}""",
        """{"runtime_env": ray.runtime_env.RuntimeEnv(worker_process_setup_hook="gc.collect", env_vars={"MINE": "1"})}""",
        """{"job_config": ray.job_config.JobConfig(runtime_env={"env_vars": {"MINE": "1"},
            "worker_process_setup_hook": lambda: setattr(__import__("sys"), "theirs", "ran")})}""",
    ],
)
def test_a_setup_hook_of_the_users_runs_too(cluster: str, tmp_path: Path, asked: str) -> None:
    found = told(driver(tmp_path, SCRIPT, asked, address=cluster))
    assert found["installed"] == [str(tmp_path / "run")]
    assert found["theirs"] == ("ran" if "lambda" in asked else None)
    assert found["variables"].get("MINE") == ("1" if "MINE" in asked else None)


def test_driver_and_workers_are_one_attempt_and_the_next_start_is_another(cluster: str, tmp_path: Path) -> None:
    for _ in range(2):
        driver(tmp_path, TWICE, address=cluster)
    run = ratioscope.open_run(tmp_path / "run")
    writers = [json.loads(line[line.index("{") :]) for line in opening_lines(tmp_path / "run")]
    assert sorted((writer["rank"], writer["attempt"]) for writer in writers) == [(0, 0)] * 2 + [(0, 1)] * 2 + [
        (1, 0),
        (1, 1),
    ]
    assert run.metrics(by=("step",))["mismatch/sequences"].to_list() == [3]


def opening_lines(run: Path) -> list[str]:
    return [path.read_text().splitlines()[0] for path in (run / "commits").glob("*.jsonl")]


def test_the_setup_hook_is_harmless_where_there_is_no_ratioscope(tmp_path: Path) -> None:
    theirs: Any = textwrap.dedent
    hook = ray.cloudpickle.dumps(ray_workers.setup_hook(theirs))
    (tmp_path / "hook").write_bytes(hook)
    code = f"""
        import sys
        sys.modules["ratioscope"] = None
        import ray
        try:
            ray.cloudpickle.loads(open({str(tmp_path / "hook")!r}, "rb").read())()
        except TypeError as error:  # textwrap.dedent wants a text: it was called
            print(error)
        print([name for name in sys.modules if name.startswith("ratioscope.")])
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, env=plain())
    assert "dedent() missing 1 required" in done.stdout and done.stdout.endswith("[]\n"), done.stderr
    assert "this Ray worker is not recorded: No module named" in done.stderr


def test_a_watched_class_that_ray_pickles_by_value_works_where_it_is_read() -> None:
    main: Any = importlib.import_module("__main__")

    class Actor:
        def step(self, batch: int) -> int:
            return batch + 1

    Actor.__module__, Actor.__qualname__ = "__main__", "NowhereToBeFound"
    seen: list[Any] = []
    main.HiddenActor = Actor
    recording = Recording("nowhere", {}, "toy")
    undo = put_on([Hook("__main__", "HiddenActor.step", after="append")], seen, recording)
    try:
        data = ray.cloudpickle.dumps(Actor)
        assert Actor().step(1) == 2 and len(seen) == 1
    finally:
        undo()
        del main.HiddenActor
    assert b"Recording" not in data and ray.cloudpickle.loads(data)().step(1) == 2 and len(seen) == 1


def test_a_submitted_job_records_and_so_do_its_workers(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "job.py"
    script.write_text(SCRIPT)
    posted = posted_by_the_client(tmp_path, monkeypatch, f"true && {sys.executable} {script} '{{}}'")
    assert posted["runtime_env"]["env_vars"].items() >= {"MINE": "1", "RATIOSCOPE_RUN": str(tmp_path / "run")}.items()
    found = told(run_job(cluster, tmp_path, posted))
    assert found["installed"] == [str(tmp_path / "run")] and found["variables"]["MINE"] == "1"
    assert (found["in_worker"], found["driver"]) == (True, False)
    assert (
        found["runtime_env"]["worker_process_setup_hook"] == "ratioscope_install"
    )  # so the driver's own hooks were on


def posted_by_the_client(folder: Path, monkeypatch: pytest.MonkeyPatch, entrypoint: str) -> dict[str, Any]:
    """What Ray's real client sends to the job server, with our hooks on it."""
    client = importlib.import_module("ray.dashboard.modules.job.sdk").JobSubmissionClient
    posted: list[Any] = []

    class Answer:
        status_code = 200

        def json(self) -> dict[str, str]:
            return {"job_id": "1", "submission_id": "1"}

    def do_request(self: Any, method: str, endpoint: str, *, json_data: Any = None, **named: Any) -> Answer:
        posted.append(json_data)
        return Answer()

    monkeypatch.setattr(client, "_do_request", do_request)
    monkeypatch.setattr(client, "__init__", lambda self: setattr(self, "_default_metadata", {}))
    monkeypatch.setenv("RATIOSCOPE_RUN", str(folder / "run"))
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "a job")
    undo = put_on(ray_workers.HOOKS, ray_workers.Forwarder(), Recording(folder / "run", {"strict": True}, "ray"))
    try:
        client().submit_job(entrypoint=entrypoint, runtime_env={"env_vars": {"MINE": "1"}})
    finally:
        undo()
    found: dict[str, Any] = posted[0]
    return found


def run_job(cluster: str, folder: Path, posted: dict[str, Any]) -> str:
    """What the job printed, run by Ray's real job manager on the cluster."""
    manager = f"""
        import asyncio, json, sys, ray
        from ray._raylet import GcsClient
        from ray.dashboard.modules.job.job_manager import JobManager

        async def main():
            manager = JobManager(GcsClient(address={cluster!r}), {str(folder)!r})
            job = await manager.submit_job(entrypoint=sys.argv[1], runtime_env=json.loads(sys.argv[2]))
            while not (status := await manager.get_job_status(job)).is_terminal():
                await asyncio.sleep(0.2)
            print(status, manager.get_job_logs(job))

        ray.init({cluster!r}, logging_level="error")
        asyncio.run(main())
    """
    command = [sys.executable, "-c", textwrap.dedent(manager), posted["entrypoint"], json.dumps(posted["runtime_env"])]
    done = subprocess.run(command, env=plain(), capture_output=True, text=True, timeout=360)
    assert "SUCCEEDED" in done.stdout, done.stdout[-2000:] + done.stderr[-3000:]
    return done.stdout
