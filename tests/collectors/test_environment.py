"""What the environment says a process does, which start of a run it belongs to, and being told of imports."""

import importlib
import importlib.util
import inspect
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from support.toy_job import clean_environment, write_job
from support.waiting import PATIENCE

from ratioscope import process
from ratioscope.collectors import environment
from ratioscope.collectors.environment import launch_name
from ratioscope.collectors.process.variables import LAUNCH, RUN, recording_variables
from ratioscope.collectors.watching import imports
from ratioscope.collectors.watching.imports import when_imported
from ratioscope.collectors.writing import run_file
from ratioscope.collectors.writing.joining import place_in_run
from ratioscope.collectors.writing.run_file import launch
from ratioscope.layout import encode_line

LAUNCHERS = (*run_file.LAUNCHERS, *run_file.RESTARTS, *run_file.NODES, LAUNCH)


@pytest.fixture
def packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to import from; what comes from it is forgotten afterwards."""
    monkeypatch.syspath_prepend(tmp_path)
    files = {
        "toy/__init__.py": "ready = 1\n",
        "toy/part.py": "import toy\nready = toy.ready\n",
        "toy/spaced/leaf.py": "ready = 2\n",
    }
    files["toy/broken.py"] = "import os\nif os.environ.get('BROKEN'):\n    raise RuntimeError('broken')\nready = 3\n"
    write_job(tmp_path, files)
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "toy"]:
        del sys.modules[name]
    imports._awaited.clear()


def test_one_is_told_once_when_a_module_is_complete(packages: Path) -> None:
    told: list[tuple[ModuleType, int]] = []
    when_imported("toy.part", lambda module: told.append((module, vars(module)["ready"])))
    importlib.import_module("toy")
    assert told == []
    part = importlib.import_module("toy.part")
    importlib.import_module("toy.part")
    assert told == [(part, 1)]


def test_of_a_module_that_is_there_already_one_is_told_at_once(packages: Path) -> None:
    told: list[ModuleType] = []
    part = importlib.import_module("toy.part")
    when_imported("toy.part", told.append)
    assert told == [part]


def test_who_is_told_may_await_more(packages: Path) -> None:
    told: list[str] = []
    when_imported("toy", lambda _: when_imported("toy.part", lambda module: told.append(module.__name__)))
    importlib.import_module("toy.part")
    assert told == ["toy.part"]


def test_a_package_without_a_file_tells_before_its_first_module(packages: Path) -> None:
    told: list[str] = []
    when_imported("toy.spaced", lambda _: when_imported("toy.spaced.leaf", lambda module: told.append(module.__name__)))
    importlib.import_module("toy.spaced.leaf")
    assert told == ["toy.spaced.leaf"]


def test_looking_for_a_module_is_no_import(packages: Path) -> None:
    told: list[ModuleType] = []
    when_imported("toy", told.append)
    assert importlib.util.find_spec("toy") is not None and importlib.util.find_spec("toy_missing") is None
    assert told == []
    importlib.import_module("toy")
    assert len(told) == 1


def test_an_import_that_fails_fails_as_ever_and_the_next_one_tells(
    packages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[ModuleType] = []
    when_imported("toy.broken", told.append)
    monkeypatch.setenv("BROKEN", "1")
    with pytest.raises(RuntimeError, match="broken"):
        importlib.import_module("toy.broken")
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("toy.missing")
    monkeypatch.delenv("BROKEN")
    module = importlib.import_module("toy.broken")
    assert told == [module]


def test_modules_are_as_they_would_be(packages: Path) -> None:
    when_imported("toy.part", lambda _: None)
    part: Any = importlib.import_module("toy.part")
    assert type(part.__loader__).__name__ == type(part.__spec__.loader).__name__ == "SourceFileLoader"
    assert inspect.getsource(part) == "import toy\nready = toy.ready\n"
    assert importlib.reload(part) is part


def test_another_tool_that_watches_imports_still_works(packages: Path) -> None:
    class Other:
        """Asks everybody else, as wrapt and tracers do."""

        asked = 0

        @classmethod
        def find_spec(cls, name: str, path: Any = None, target: Any = None) -> Any:
            if name != "toy" or cls.asked > 5:
                return None
            cls.asked += 10
            return importlib.util.find_spec(name)

    told: list[ModuleType] = []
    when_imported("toy", told.append)
    sys.meta_path.insert(0, Other)
    try:
        importlib.import_module("toy")
    finally:
        sys.meta_path.remove(Other)
    assert len(told) == 1


def in_process(folder: Path, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """The code in a fresh Python, with the toy job on its path."""
    call = [sys.executable, "-c", f"from ratioscope.collectors import environment as e\nimport os, sys\n{code}"]
    made = clean_environment(folder, **variables)
    return subprocess.run(call, cwd=folder, env=made, capture_output=True, text=True, timeout=PATIENCE)


def test_without_a_run_folder_nothing_is_installed(tmp_path: Path) -> None:
    done = in_process(
        tmp_path, "e.install(); print(e.installed_for, [f for f in sys.meta_path if 'ratioscope' in repr(f)])"
    )
    assert "[] " in done.stdout and "imports._Finder" not in done.stdout


def test_installing_twice_is_installing_once_and_children_find_the_same_folder_and_start(tmp_path: Path) -> None:
    code = "e.install(); e.install(); os.chdir('/'); print(len(e.installed_for), os.environ[e.RUN], bool(os.environ[e.LAUNCH]))"
    assert in_process(tmp_path, code, RATIOSCOPE_RUN="RUN").stdout == f"1 {tmp_path / 'RUN'} True\n"
    given = in_process(
        tmp_path, "e.install(); print(os.environ[e.LAUNCH])", RATIOSCOPE_RUN="RUN", RATIOSCOPE_LAUNCH="mine"
    )
    assert given.stdout == "mine\n"


def test_installing_loads_neither_numpy_nor_a_trainer(tmp_path: Path) -> None:
    heavy = "{'numpy', 'pyarrow', 'torch', 'trl', 'ray', 'asyncio', 'ratioscope.metrics'}"
    done = in_process(tmp_path, f"e.install(); print({heavy} & set(sys.modules))", RATIOSCOPE_RUN="RUN")
    assert done.stdout == "set()\n"


def test_options_come_from_the_environment_and_reach_the_run(tmp_path: Path) -> None:
    write_job(tmp_path)
    options = {
        "RATIOSCOPE_RUN": "RUN",
        "RATIOSCOPE_NAME": "tonight",
        "RATIOSCOPE_TEXT": "none",
        "RATIOSCOPE_SCALARS": "1",
        "RATIOSCOPE_SELF_NOISE": "20x2",
    }
    code = "e.install(); from training.loop import train; train(); print(e.environment_options())"
    done = in_process(tmp_path, code, **options)
    assert done.stdout == (
        "{'scalars': True, 'name': 'tonight', 'text': 'none', 'self_noise': SelfNoise(every=20, sequences=2)}\n"
    ), done.stderr
    assert '"name": "tonight"' in (tmp_path / "RUN" / "run.json").read_text()


def test_a_rate_of_second_forwards_that_cannot_be_read_costs_no_recording(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("RATIOSCOPE_SELF_NOISE", "often")
    assert environment.environment_options() == {"scalars": False}
    assert "'often'; wanted steps x sequences, such as 10x4. The run is recorded without" in caplog.text


def test_what_cannot_be_installed_is_said_and_raises_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(RUN, "RUN")
    monkeypatch.setattr(environment, "installed_for", [])
    # before the hooks: a trainer that this process has imported would be recorded by later tests
    monkeypatch.setattr(environment, "tell_of_this_process", lambda: 1 / 0)
    with caplog.at_level(logging.WARNING):
        environment.install()
    assert "ZeroDivisionError" in caplog.text and "goes on without" in caplog.text


def test_the_variables_that_another_host_needs_are_absolute() -> None:
    given = {RUN: "here", LAUNCH: "one", "RATIOSCOPE_NAME": "", "HOME": "/h"}
    assert recording_variables(given) == {RUN: str(Path.cwd() / "here"), LAUNCH: "one"}


def test_a_start_has_a_new_name_unless_a_launcher_started_several_as_one() -> None:
    assert launch_name({}) != launch_name({})
    task = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "3", "SLURM_STEP_NUM_TASKS": "16"}
    assert launch_name(task) == "slurm-7.3" != launch_name({**task, "SLURM_STEP_ID": "4"})
    for alone in ({**task, "SLURM_STEP_NUM_TASKS": "1"}, {**task, "SLURM_STEP_ID": "4294967291"}):  # a shell, a script
        assert launch_name(alone) != launch_name(alone)
    rank = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500"}
    assert launch_name(rank) == launch_name(rank) and str(os.getppid()) in launch_name(rank)


class Start:
    """Processes that open a writer in a run, each with an environment and on a host of its own."""

    def __init__(self, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run, self._monkeypatch = run, monkeypatch
        (run / "commits").mkdir(parents=True)

    def opens(self, rank: int, host: str = "a", *, closed: bool = False, pid: int = 0, **variables: Any) -> int:
        """The attempt that this process joins. pid: its process, else one that lives."""
        for name in LAUNCHERS:
            self._monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            self._monkeypatch.setenv(name, str(value))
        self._monkeypatch.setattr(process, "host_name", lambda: host)
        launch.cache_clear()
        attempt = place_in_run(self.run, rank).attempt
        opening = {
            "kind": "open",
            "rank": rank,
            "host": host,
            "namespace": process.pid_namespace(),
            "pid": pid or os.getpid(),
            "attempt": attempt,
            "launch": launch(),
        }
        lines = [encode_line(opening), *([encode_line({"kind": "close"})] if closed else [])]
        (self.run / "commits" / f"{len(list((self.run / 'commits').iterdir())):03}.jsonl").write_bytes(b"".join(lines))
        return attempt


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    yield Start(tmp_path / "run", monkeypatch)
    launch.cache_clear()


def test_processes_of_one_launch_share_an_attempt_several_of_one_rank_and_ended_ones_too(start: Start) -> None:
    for host, closed in (("a", True), ("a", False), ("b", False)):
        assert start.opens(0, host, closed=closed, RATIOSCOPE_LAUNCH="first") == 0
    assert start.opens(5, RATIOSCOPE_LAUNCH="first") == 0
    assert start.opens(7, RATIOSCOPE_LAUNCH="second") == 1  # a rank that the first did not have
    assert start.opens(0, RATIOSCOPE_LAUNCH="second") == 1


def test_a_restart_by_torchelastic_is_a_new_attempt_and_other_processes_of_the_launch_are_of_the_first(
    start: Start,
) -> None:
    assert start.opens(0, RATIOSCOPE_LAUNCH="one", TORCHELASTIC_RESTART_COUNT=0) == 0
    assert start.opens(0, RATIOSCOPE_LAUNCH="one") == 0  # the engine's process, which torchrun did not start
    assert start.opens(1, RATIOSCOPE_LAUNCH="one", TORCHELASTIC_RESTART_COUNT=1) == 1
    assert start.opens(0, RATIOSCOPE_LAUNCH="one", TORCHELASTIC_RESTART_COUNT=1) == 1


def test_nodes_that_were_started_one_by_one_meet_by_what_torchrun_tells_them(start: Start) -> None:
    def rank(number: int, host: str, named: str, restart: int = 0, **master: str) -> int:
        told: Any = {"TORCHELASTIC_RUN_ID": "none", "MASTER_ADDR": "a", "MASTER_PORT": "29500", **master}
        return start.opens(number, host, RATIOSCOPE_LAUNCH=named, TORCHELASTIC_RESTART_COUNT=restart, **told)

    assert [rank(0, "a", "first-a"), rank(8, "b", "first-b"), rank(1, "a", "first-a"), rank(9, "b", "first-b")] == [
        0
    ] * 4
    assert [rank(8, "b", "first-b", 1), rank(0, "a", "first-a", 1), rank(9, "b", "first-b", 1)] == [1] * 3
    assert [rank(9, "b", "second-b"), rank(1, "a", "second-a"), rank(8, "b", "second-b")] == [2] * 3
    assert rank(16, "c", "third-c", MASTER_PORT="29999") == 3


def test_without_a_name_of_ours_a_launchers_is_taken(start: Start) -> None:
    assert start.opens(0, SLURM_JOB_ID=7) == 0
    assert start.opens(1, "b", SLURM_JOB_ID=7) == 0
    assert start.opens(3, SLURM_JOB_ID=8) == 1
    assert start.opens(3, closed=True, SLURM_JOB_ID=8) == 1  # the same launch, still running: two writers of one rank
    assert start.opens(3, SLURM_JOB_ID=8) == 1  # one of the two has ended, the other goes on
    assert start.opens(3, closed=True, SLURM_JOB_ID=9) == 2
    assert start.opens(3, SLURM_JOB_ID=9) == 3  # it has ended: started again within the same allocation


def test_a_ray_worker_that_is_older_than_its_job_has_no_launchers_name(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start.opens(0, RAY_JOB_ID="ffffffff")
    assert launch().startswith("process:")
    start.opens(1, RAY_JOB_ID="01000000")
    assert launch().startswith("job:01000000")
