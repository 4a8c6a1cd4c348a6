"""The log of a killed writer counts the rows that it had taken, but for those of the last moment; a quick step costs no line."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter
from support.waiting import wait_until
from support.written_run import commit_lines

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.collectors.writing.joining import place_in_run
from ratioscope.collectors.writing.run_file import launch
from ratioscope.collectors.writing.writer import FIRST_SECONDS, SECONDS, Intake
from ratioscope.ingest.analysis.recorded_events import recorded_events

TRAINER = """
import sys
from ratioscope import Collector
from ratioscope.collectors.writing import writer_process
hear = writer_process.WriterProcess._hear
def told(self, reply):
    if "ready" in reply:
        print(reply["ready"], flush=True)
    hear(self, reply)
writer_process.WriterProcess._hear = told
collector = Collector(sys.argv[1], rank=int(sys.argv[2]))
for line in sys.stdin:
    step, sequences = map(int, line.split())
    collector.log(step=step, rollout_logprobs=[[-1.0]] * sequences, old_logprobs=[[-1.5]] * sequences)
"""


def test_the_log_says_what_waits_for_long_and_again_when_it_has_doubled() -> None:
    taken = Intake()
    assert taken.wait(0.0) is None
    taken.hold(2, now=10.0)
    assert taken.wait(10.0) == FIRST_SECONDS and taken.wait(10.0 + FIRST_SECONDS) == 0
    taken.say()
    taken.hold(1, now=20.0)
    assert taken.wait(30.0) is None  # three are not twice two
    taken.hold(1, now=31.0)
    assert (taken.wait(31.0) or 0) < 0
    taken.let_go(4)
    assert taken.wait(40.0) is None
    taken.hold(1, now=50.0)
    assert taken.wait(50.0) == SECONDS  # steps are known to be written


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Has a trainer log (step, sequences); when the log says that they were taken, it and its writer are killed at once."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def run(*steps: tuple[int, int], rank: int = 1, offered: int, **environment: str) -> Path:
        command = [sys.executable, "-c", TRAINER, str(tmp_path / "run"), str(rank)]
        environment = {**os.environ, "RATIOSCOPE_WRITER": "process", **environment}
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        ) as trainer:
            assert trainer.stdin is not None and trainer.stdout is not None
            for step, sequences in steps:
                print(step, sequences, file=trainer.stdin, flush=True)
            writer = int(trainer.stdout.readline())
            wait_until(lambda: offered in taken_of(tmp_path / "run"))
            for pid in (writer, trainer.pid):
                os.kill(pid, signal.SIGKILL)
        return tmp_path / "run"

    return run


def taken_of(run: Path) -> list[int]:
    return [line["offered"] for line in commit_lines(run) if line["kind"] == "taken"] if run.is_dir() else []


def test_rows_that_a_killed_worker_had_taken_before_its_first_step_was_written_are_counted(
    killed: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    run = killed((4, 3), offered=3)
    found = open_run(run).conservation
    assert (found.offered, found.written, found.lost, found.gone) == (3, 0, 3, 1)
    assert [(lost.step, lost.taken, lost.sequences) for lost in found.losses] == [(None, 4, 3)]
    assert recorded_events(open_run(run)).filter(event="lost")["step"].to_list() == [4]
    main(["info", str(run)])
    assert "at least 3 sequences" in " ".join(capsys.readouterr().out.split())


def test_what_a_later_commit_counts_is_not_lost(tmp_path: Path) -> None:
    steps = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=2, rows=3))
    writer = FakeWriter(tmp_path / "run").open()
    writer.say(kind="taken", step=4, offered=3)
    writer.step(steps[0])
    assert open_of(writer.root) == 0
    writer.say(kind="taken", step=22, offered=8)
    assert open_of(writer.root) == 5
    writer.say(kind="taken", step=-1, offered="many")  # no writer of ours says so
    assert open_of(writer.root) == 5


def open_of(root: Path) -> int:
    found = open_run(root).conservation
    return found.pending + found.lost


def test_a_successor_takes_over_and_the_loss_stays_on_record(killed: Any) -> None:
    killed((1, 2), offered=2, RATIOSCOPE_LAUNCH="one")
    run = killed((1, 3), offered=3, RATIOSCOPE_LAUNCH="one")
    found = open_run(run).conservation
    assert (found.offered, found.lost, found.gone) == (5, 5, 1)
    assert [len(line.get("takes_over", ())) for line in commit_lines(run) if line["kind"] == "open"].count(1) == 1


@pytest.mark.parametrize("is_worker", (True, False))
def test_a_driver_does_not_take_over_from_a_worker_of_its_rank(
    killed: Any, monkeypatch: pytest.MonkeyPatch, is_worker: bool
) -> None:
    for name, value in (("RATIOSCOPE_LAUNCH", "one"), ("RAY_RAYLET_PID", "7")):
        monkeypatch.setenv(name, value)
    run = killed((1, 2), offered=2)
    if not is_worker:
        monkeypatch.delenv("RAY_RAYLET_PID")
    (line,) = (line for line in commit_lines(run) if line["kind"] == "open")
    assert line["ray_worker"] is True
    launch.cache_clear()
    place = place_in_run(run, rank=1)
    launch.cache_clear()
    assert place.attempt == 0 and place.takes_over == ((line["writer"],) if is_worker else ())
