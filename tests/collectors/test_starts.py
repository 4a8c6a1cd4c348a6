"""The folder that a start records into: a run of the same experiment goes on, any other start begins a run beside it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.paths import TESTS

from ratioscope import Collector, open_run
from ratioscope.collectors.writing.run_file import launch, run_info, start_run
from ratioscope.collectors.writing.start_files import is_claimed, this_start
from ratioscope.collectors.writing.starts import folder_of_launch, settled
from ratioscope.errors import ConfigError
from ratioscope.process import process_start

ROWS: dict[str, Any] = {"rollout_logprobs": [[-1.0], [-2.0]], "old_logprobs": [[-1.5], [-2.0]]}
RELEASED = TESTS / "old_releases" / "2026_11" / "tonight"
PROGRAM = """
import json, sys
from ratioscope import Collector
collector = Collector(sys.argv[1], writer="thread", **json.loads(sys.argv[2]))
for line in sys.stdin:
    collector.log(step=int(line), rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
    assert collector.flush(), collector.counts
    print(collector.run_dir, flush=True)
collector.close()
"""


class Job:
    """A process that records the steps that it is told to."""

    def __init__(self, program: Path, run: Path, options: dict[str, Any], environment: dict[str, str]) -> None:
        command = [sys.executable, str(program), str(run), json.dumps(options)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **environment},
        )  # fmt: skip

    def sends(self, step: int) -> None:
        assert self.process.stdin is not None
        print(step, file=self.process.stdin, flush=True)

    def folder(self) -> str:
        """The name of the folder that the last step lies in."""
        assert self.process.stdout is not None
        return Path(self.process.stdout.readline().strip()).name

    def records(self, *steps: int) -> str:
        folders = []
        for step in steps:
            self.sends(step)
            folders.append(self.folder())
        return folders[-1]

    def ends(self) -> str:
        """Everything that it said."""
        return self.process.communicate()[1]


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Any]:
    begun: list[Job] = []

    def job(*, script: str = "train.py", environment: dict[str, str] | None = None, **options: Any) -> Job:
        (program := tmp_path / "code" / script).parent.mkdir(parents=True, exist_ok=True)
        program.write_text(PROGRAM)
        begun.append(Job(program, tmp_path / "run", options, environment or {}))
        return begun[-1]

    yield job
    for each in begun:
        each.ends()


def record(run: Path, *steps: int, **options: Any) -> Path:
    """The folder that a start of this process records these steps into."""
    with Collector(run, writer="thread", **options) as collector:
        for step in steps or (1,):
            collector.log(step=step, **ROWS)
        assert collector.flush()
    assert not collector.counts.sequences.dropped
    return collector.run_dir


@pytest.fixture(autouse=True)
def _a_script(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program of every start in this process: a worker of the tests has none."""
    monkeypatch.setattr(sys, "argv", ["train.py"])


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Everything that was said, but for the last line of each recording."""
    return [words for words in caplog.messages if not words.startswith("ratioscope: recorded ")]


def test_other_settings_begin_a_run_beside_it_and_say_so_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = tmp_path / "same"
    assert record(run, *range(1, 9), trainer="loop 1", config={"lr": 1e-3}) == run
    assert not said(caplog)
    other = record(run, *range(1, 5), trainer="loop 1", config={"lr": 5e-3})
    assert other == tmp_path / "same-2" and len(open_run(run).steps) == 8 and len(open_run(other).steps) == 4
    assert said(caplog) == [
        f"{run} holds a run of loop 1, steps 1 to 8 (its lr is 0.001, here 0.005): this start records into {other};"
        " existing='resume' would go on in same"
    ]
    assert (open_run(other).name, open_run(other).info["config"]) == ("same-2", {"lr": 5e-3})
    assert record(run, 9, trainer="loop 1", config={"lr": 1e-3}) == run, "each start finds its own experiment"
    assert record(run, 5, trainer="loop 1", config={"lr": 5e-3}) == other
    assert record(run, 1, trainer="loop 1", config={"lr": 7e-3}) == tmp_path / "same-3"


def test_a_restart_goes_on_without_a_change(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"args": {"lr": 1e-3, "output_dir": "out/0301-1", "world_size": 8, "resume_from_checkpoint": None}}
    again = {"args": {**settings["args"], "output_dir": "out/0301-2", "world_size": 6, "resume_from_checkpoint": "4"}}
    record(tmp_path / "run", 1, 2, 3, trainer="trl 1.0", config=settings)
    assert record(tmp_path / "run", 3, 4, trainer="trl 1.1", config=again) == tmp_path / "run"
    assert "steps 1 to 3: this start goes on with it as its next attempt" in said(caplog)[0]
    assert len(said(caplog)) == 1 and open_run(tmp_path / "run").attempts == {0: 1, 1: 3}


@pytest.mark.parametrize(
    ("known", "own", "is_same"),
    [
        ({}, {"trainer": "verl", "config": {"lr": 1}}, True),
        ({"trainer": "trl 1"}, {"trainer": "verl 1"}, False),
        ({"config": {"lora": {"rank": 8}}}, {"config": {"lora": {"rank": 16}}}, False),
        ({"config": {"num_iterations": 1}}, {"config": {"num_iterations": 2}}, False),
        ({"config": {"beta": 0.1}}, {"config": {"beta": 0.1, "clip": 0.2}}, False),
        ({"config": {"beta": 1}}, {"config": {"beta": 1.0, "clip": None}}, True),
        ({"config": {"data": "<a at 0x7f00aa11>"}}, {"config": {"data": "<a at 0x7f00bb22>"}}, True),
        ({"config": {"seed": 1}}, {"config": {"seed": 2}}, False),
        ({"config": {"rank": 8}}, {"config": {"rank": 16}}, False),
        ({"config": {"model": {"rank": 8}}}, {"config": {"model": {"rank": 16}}}, False),
        ({"config": {"data": "prompts-2026-01-01"}}, {"config": {"data": "prompts-2026-02-01"}}, False),
        ({"config": {"data": "prompts/20260101"}}, {"config": {"data": "prompts/20260201"}}, False),
        ({"config": {"data_date": "2026-01-01"}}, {"config": {"data_date": "2026-02-01"}}, False),
        ({"config": {"model": "ckpts/v1"}}, {"config": {"model": "ckpts/v2"}}, False),
        ({"config": {"experiment_name": "a"}}, {"config": {"experiment_name": "b"}}, False),
        ({"config": {"max_steps": 100}}, {"config": {"max_steps": 200}}, False),
        ({"config": {"gradient_checkpointing": True}}, {"config": {"gradient_checkpointing": False}}, False),
        ({"config": {"reward_url": "http://a"}}, {"config": {"reward_url": "http://b"}}, False),
        ({"config": {"worker_class": "a"}}, {"config": {"worker_class": "b"}}, False),
        ({"config": {"argv": ["--lr", "1"]}}, {"config": {"argv": ["--lr", "2"]}}, False),
        ({"config": {"start_time": "10:00", "pid": 1}}, {"config": {"start_time": "11:00", "pid": 2}}, True),
        (
            {"config": {"num_workers": 4, "actor": {"n_gpus": 8}}},
            {"config": {"num_workers": 2, "actor": {"n_gpus": 4}}},
            True,
        ),
        ({"config": {"resume": None}}, {"config": {"resume": "out/checkpoint-40"}}, True),
    ],
)
def test_what_is_unknown_is_no_difference_and_a_setting_is_one(
    tmp_path: Path, known: dict[str, Any], own: dict[str, Any], is_same: bool
) -> None:
    record(tmp_path / "run", **known)
    assert (record(tmp_path / "run", 2, **own) == tmp_path / "run") is is_same


def test_another_script_begins_a_run_and_a_mended_one_goes_on(begin: Any, tmp_path: Path) -> None:
    first = begin()
    assert first.records(1, 2) == "run"
    first.process.kill()
    first.ends()
    assert begin(script="train.py").records(3) == "run"
    assert begin(script="other.py").records(1) == "run-2"


@pytest.mark.parametrize(("job", "folders"), [("", ["run", "run-2"]), ("41007", ["run", "run"])])
def test_a_script_in_a_folder_of_another_number_is_another_one_but_for_the_number_of_its_job(
    begin: Any, job: str, folders: list[str]
) -> None:
    for number, folder in enumerate(folders):
        name = f"job-{int(job) + number}" if job else f"exp{number}"
        started = begin(script=f"{name}/train.py", environment={"SLURM_JOB_ID": name[4:]} if job else {})
        assert started.records(number) == folder
        started.ends()


def test_the_argument_chooses(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = tmp_path / "run"
    record(run, config={"lr": 1})
    assert record(run, 2, config={"lr": 2}, existing="resume") == run
    assert record(run, 1, config={"lr": 1}, existing="new") == tmp_path / "run-2"
    assert record(run, 1, config={"lr": 1}, existing="new") == tmp_path / "run-3"
    with pytest.raises(ConfigError, match=r"run holds a run, steps 1 to 2; wanted a folder without a run"):
        Collector(run, existing="error")
    with pytest.raises(ConfigError, match="existing is 'newest'; wanted one of resume, new, error"):
        Collector(run, existing="newest")  # type: ignore[arg-type]
    assert record(tmp_path / "fresh", existing="error") == tmp_path / "fresh"


def test_each_attempt_has_its_settings_on_record(tmp_path: Path) -> None:
    for attempt in range(2):
        record(tmp_path / "run", 1, config={"lr": attempt + 1}, trainer=f"loop {attempt}", existing="resume")
    infos = [open_run(tmp_path / "run", attempt=attempt).info for attempt in range(2)]
    assert [(info["config"], info["trainer"]) for info in infos] == [({"lr": 1}, "loop 0"), ({"lr": 2}, "loop 1")]


def test_a_run_of_an_older_release_goes_on(tmp_path: Path) -> None:
    run = shutil.copytree(RELEASED, tmp_path / "tonight")
    assert record(run, 4, config={"lr": 99}, trainer="myloop 1.0") == run
    assert open_run(run).steps == [1, 2, 4]


def test_all_ranks_of_a_launch_record_into_one_folder(begin: Any, tmp_path: Path) -> None:
    begin(config={"lr": 1}).records(1)
    launched = {"RATIOSCOPE_LAUNCH": "tonight"}
    ranks = [begin(config={"lr": rank + 2}, rank=rank, environment=launched) for rank in range(2)]
    for rank in ranks:
        rank.sends(1)
    assert {rank.folder() for rank in ranks} == {"run-2"}, "decided once, whichever rank is first"
    ranks[1].process.kill()
    ranks[1].ends()
    again = begin(config={"lr": 9}, rank=1, environment=launched)
    assert again.records(2) == "run-2", "the rank of a node that was started again"
    assert folder_of_launch(tmp_path / "run", "tonight") == tmp_path / "run-2"
    assert list(open_run(tmp_path / "run-2").attempts) == [0]


def test_a_launcher_that_counts_restarts_stays_in_its_folder(begin: Any) -> None:
    begin().records(1)
    torchrun = {"TORCHELASTIC_RUN_ID": "none", "MASTER_PORT": "29500", "RANK": "0"}
    for restarts, folder in (("0", "run-2"), ("1", "run-2"), ("0", "run-3")):
        job = begin(existing="new", environment={**torchrun, "TORCHELASTIC_RESTART_COUNT": restarts})
        assert job.records(1) == folder, "a later torchrun of the same name is another start"
        job.ends()


def test_ranks_without_a_launcher_record_into_one_folder(begin: Any) -> None:
    begin(config={"lr": 1}).records(1)
    ranks = [begin(rank=rank, config={"lr": 2}, existing="new") for rank in range(2)]
    for rank in ranks:
        rank.sends(1)
    assert {rank.folder() for rank in ranks} == {"run-2"}


def test_two_jobs_that_start_at_one_instant_do_not_mix(begin: Any, tmp_path: Path) -> None:
    jobs = [begin(config={"lr": number // 2}) for number in range(3)]
    for job in jobs:
        job.sends(1)
    folders = [job.folder() for job in jobs]
    assert sorted(folders) == ["run", "run-2", "run-3"], "also those of equal settings, because both are at work"
    for number, folder in enumerate(folders):
        assert open_run(tmp_path / folder).info["config"] == {"lr": number // 2}
        assert open_run(tmp_path / folder).conservation.written == 1


def test_a_start_waits_for_the_settings_of_another_rank_that_has_just_claimed_the_folder(tmp_path: Path) -> None:
    """Without them a process that one program started beside it would pass for a rank of the same experiment."""
    (base := tmp_path / "run").mkdir()
    own = this_start(0, "ours", None)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        child = replace(own.process, pid=other.pid, started=process_start(other.pid))
        theirs = replace(this_start(1, "theirs", None), process=child)
        assert is_claimed(base, 1, theirs, base)
        with ThreadPoolExecutor() as threads:
            waiting = threads.submit(settled, base, run_info("run", None, {"lr": 2}), own, "auto")
            start_run(base, run_info("run", None, {"lr": 1}))
            assert waiting.result().root.name == "run-2"
        other.communicate(b"\n")


def test_a_start_that_recorded_nothing_leaves_its_folder_to_the_next(tmp_path: Path) -> None:
    Collector(tmp_path / "run", writer="thread", config={"lr": 1}).close()
    assert record(tmp_path / "run", config={"lr": 2}) == tmp_path / "run"
    assert open_run(tmp_path / "run").info["config"] == {"lr": 2}


def test_a_folder_of_other_files_gets_a_run_and_becomes_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert record(Path("."), 1) == tmp_path / "ratioscope-run"
    assert (
        f"{tmp_path} holds files that are no run, such as train.py: the run is {tmp_path}/ratioscope-run" in caplog.text
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ratioscope-run", "train.py"]
    assert record(Path("."), 2) == tmp_path / "ratioscope-run" and open_run("ratioscope-run").attempts == {0: 1, 1: 2}


def test_logs_and_hidden_files_do_not_matter(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in ("train.log", "slurm-7.out", ".gitignore", "ratioscope.toml"):
        (run / name).write_text("")
    assert record(run) == run


def test_strangers_files_among_the_decisions_keep_nobody_from_recording(tmp_path: Path) -> None:
    starts = tmp_path / "run" / ".starts"
    starts.mkdir(parents=True)
    for number, text in enumerate(("{", "[]", '{"folder": "../elsewhere"}', '{"folder": "run", "pid": "x"}'), 1):
        (starts / f"{number:06d}.json").write_text(text)
    assert record(tmp_path / "run") == tmp_path / "run"
    shutil.rmtree(starts)
    starts.write_text("no folder")
    assert record(tmp_path / "run", 2) == tmp_path / "run"


def test_phases_of_one_launch_stay_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one")
    launch.cache_clear()
    phases = [record(tmp_path / "run", step, config={"lr": 1}) for step in range(2)]
    sweep = record(tmp_path / "run", 0, config={"lr": 2})
    launch.cache_clear()
    assert phases == [tmp_path / "run"] * 2 and list(open_run(tmp_path / "run").attempts) == [0]
    assert sweep == tmp_path / "run-2", "the next experiment of a launch is no phase"


def test_a_notebook_that_begins_again_with_other_settings_begins_a_run(tmp_path: Path) -> None:
    first = Collector(tmp_path / "run", writer="thread", config={"lr": 1})
    first.log(step=1, **ROWS)
    assert first.flush()
    assert record(tmp_path / "run", 1, config={"lr": 2}) == tmp_path / "run-2"
    assert record(tmp_path / "run", 1, trainer="another part", config={"workers": 2}) == tmp_path / "run"
    first.close()


@pytest.mark.parametrize("writer", ["process", "thread"])
def test_the_collector_knows_its_folder(tmp_path: Path, writer: Any) -> None:
    record(tmp_path / "run", config={"lr": 1})
    with Collector(tmp_path / "run", config={"lr": 2}, writer=writer, strict=writer == "thread") as collector:
        collector.log(step=1, **ROWS)
        assert collector.flush() and collector.run_dir == tmp_path / "run-2"
