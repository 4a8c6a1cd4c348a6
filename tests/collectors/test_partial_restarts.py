"""One rank that is started again, and children that a rank forks, hide nothing of what the others record."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter
from support.upkeep import demand_equal, told

from ratioscope import open_run
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.collectors.collector import Collector
from ratioscope.collectors.process.ranks import part_of
from ratioscope.collectors.writing.run_file import launch
from ratioscope.ingest.commits.attempts import Shadow
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.run import Run
from ratioscope.layout import EVENT

RAY = {"RAY_JOB_ID": "01000000"}
STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=3))

RANK = """
import os, sys
from ratioscope import Collector
collector = Collector(sys.argv[1], rank=int(sys.argv[2]))
for line in sys.stdin:
    step = int(line)
    collector.log(step=step, rollout_logprobs=[[-1.0], [-2.0]], old_logprobs=[[-1.5], [-2.0]])
    assert collector.flush()
    print(step, flush=True)
os._exit(0)  # an actor that is killed closes nothing
"""


class Rank:
    """A process of the job that records the steps it is told to, two sequences each."""

    def __init__(self, run: Path, rank: int, environment: dict[str, str]) -> None:
        command = [sys.executable, "-c", RANK, str(run), str(rank)]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
        )

    def records(self, *steps: int) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        for step in steps:
            print(step, file=self._process.stdin, flush=True)
            assert self._process.stdout.readline() == f"{step}\n"

    def ends(self) -> None:
        self._process.communicate()


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Any]:
    begun: list[Rank] = []

    def begin(rank: int, **environment: str) -> Rank:
        begun.append(Rank(tmp_path / "run", rank, environment))
        return begun[-1]

    yield begin
    for rank in begun:
        rank.ends()


def sequences(run: Run) -> dict[int, int]:
    metrics = run.metrics()
    return dict(zip(metrics["step"].to_list(), metrics["mismatch/sequences"].to_list(), strict=True))


@pytest.mark.parametrize(
    "environment", [RAY, {"RATIOSCOPE_LAUNCH": "tonight"}, {}], ids=["ray", "launch", "no launcher"]
)
def test_a_rank_that_is_started_again_replaces_its_own_steps_alone(
    tmp_path: Path, ranks: Any, environment: dict[str, str]
) -> None:
    first, second = ranks(0, **environment), ranks(1, **environment)
    first.records(0, 1, 2)
    second.records(0, 1, 2)
    second.ends()
    again = ranks(1, **environment)
    again.records(2, 3)
    first.records(3, 4)
    again.records(4)
    run = open_run(tmp_path / "run")
    assert run.writers["attempt"].unique().to_list() == [0]
    assert sequences(run) == dict.fromkeys(range(5), 4)
    assert run.sequences().group_by("step").len()["len"].to_list() == [4] * 5
    assert run.shadowed == (Shadow(attempt=0, by=0, first_step=2, last_step=2, steps=1, rank=1),)
    assert run.shadowed[0].rows == 2
    found = verify(tmp_path / "run", deep=True)
    assert found.sound and found.compared == 5, found.troubles


def test_a_start_of_all_ranks_replaces_the_later_steps_of_all(tmp_path: Path, ranks: Any) -> None:
    for steps in ((0, 1, 2), (2, 3)):
        begun = [ranks(rank, **RAY) for rank in range(2)]
        for rank in begun:
            rank.records(*steps)
        for rank in begun:
            rank.ends()
    run = open_run(tmp_path / "run")
    assert run.attempts == {0: 0, 1: 2} and sequences(run) == dict.fromkeys(range(4), 4)
    assert run.shadowed == (Shadow(attempt=0, by=1, first_step=2, last_step=2, steps=1),)


@pytest.mark.parametrize("parent_first", [True, False])
def test_children_forked_one_after_another_are_of_their_parents_attempt(tmp_path: Path, parent_first: bool) -> None:
    """In a program of its own: a test forks nothing that has threads."""
    script = """
import os, sys
from ratioscope import Collector
collector = Collector(sys.argv[1], rank=0)
values = dict(rollout_logprobs=[[-1.0]], old_logprobs=[[-1.5]])
if sys.argv[2] == "True":
    collector.log(step=0, **values)
    assert collector.flush()
for step in range(3):
    if os.fork() == 0:
        collector.log(step=step, **values)
        assert collector.close()
        os._exit(0)
    assert os.wait()[1] == 0
for step in range(1, 4):
    collector.log(step=step, **values)
assert collector.close()
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script, str(tmp_path / "run"), str(parent_first)], check=True)
    run = open_run(tmp_path / "run")
    assert run.shadowed == () and list(run.attempts) == [0]
    assert sequences(run) == {0: 1 + parent_first, 1: 2, 2: 2, 3: 1}


def test_phases_of_one_start_that_record_different_sides_are_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RATIOSCOPE_LAUNCH", "one")
    launch.cache_clear()
    for values in ({"rollout_logprobs": [[-1.0]]}, {"old_logprobs": [[-1.5]], "current_logprobs": [[-1.4]]}):
        with Collector(tmp_path / "run", rank=0) as collector:  # as two programs, one after the other, do
            collector.log(step=1, sequence_ids=["a"], **values)  # type: ignore[arg-type]
    launch.cache_clear()
    run = open_run(tmp_path / "run")
    assert run.shadowed == () and run.gaps == ("mismatch", "total", "drift")


def test_processes_that_nobody_numbered_take_over_from_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    assert part_of(None) is None  # a program by itself stands for its rank
    monkeypatch.setenv("RAY_RAYLET_PID", "7")
    monkeypatch.setenv("RAY_JOB_ID", "01000000")
    assert part_of(None) == "ray:01000000" and part_of(3) is None


def test_a_folder_in_which_a_restarted_rank_became_an_attempt_shows_what_the_others_went_on_with(
    tmp_path: Path,
) -> None:
    first, second = (FakeWriter(tmp_path / "run", f"r0000{rank}-host-1-aaaaaa", rank).open() for rank in range(2))
    again = FakeWriter(tmp_path / "run", "r00001-host-3-aaaaaa", 1, attempt=1)
    for rows in STEPS[:3]:
        first.step(rows.slice(0, 1))
        second.step(rows.slice(1, 1))
    again.clock += 100
    again.open()
    first.clock += 200
    again.step(STEPS[2].slice(1, 1))
    for rows in STEPS[3:]:
        again.step(rows.slice(1, 1))
        first.step(rows.slice(0, 1))
    run = open_run(tmp_path / "run")
    assert list(sequences(run).values()) == [2] * 6
    assert run.shadowed == (Shadow(attempt=0, by=1, first_step=16, last_step=16, steps=1, rank=1),)
    first.say(kind=EVENT, event="note", step=1, note="")
    assert run.refresh() and list(sequences(run).values()) == [2] * 6


def test_compacting_leaves_apart_what_a_rank_replaced(tmp_path: Path) -> None:
    root = tmp_path / "run"
    writers = [FakeWriter(root, f"r0000{rank}-host-1-aaaaaa", rank, segment_steps=2).open() for rank in range(2)]
    for rows in STEPS[:3]:
        for rank, writer in enumerate(writers):
            writer.step(rows.slice(rank, 1))
    again = FakeWriter(root, "r00001-host-3-aaaaaa", 1, segment_steps=2)
    again.say(kind="open", writer=again.writer, rank=1, host="host", pid=1, takes_over=[writers[1].writer])
    for rows in STEPS[2:]:
        again.step(rows.slice(1, 1))
        if rows is not STEPS[2]:
            writers[0].step(rows.slice(0, 1))
    before = told(root)
    assert compact(root).written
    demand_equal(told(root), before)
    assert sequences(open_run(root)) == dict.fromkeys(before["steps"], 2) and verify(root, deep=True).sound
