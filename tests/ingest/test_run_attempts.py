"""A resumed run is a new attempt: its steps shadow the older ones from its first step on, and that is told."""

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import open_run
from ratioscope.ingest.commits.attempts import Shadow, WriterSteps, cutoffs

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=3))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_resumed_run_shows_each_step_once_as_the_last_attempt_wrote_it(tmp_path: Path) -> None:
    first = FakeWriter(tmp_path / "run", "r00000-host-1-aaaaaa").open()
    for rows in STEPS[:5]:
        first.step(rows)
    second = FakeWriter(tmp_path / "run", "r00000-host-2-bbbbbb", attempt=1).open()
    for rows in STEPS[3:]:
        second.step(rows.slice(0, 2))
    run = open_run(tmp_path / "run")
    assert run.steps == [12, 14, 16, 18, 20, 22]
    assert run.metrics()["mismatch/sequences"].to_list() == [3, 3, 3, 2, 2, 2]
    assert run.metrics(("step", "lag"))["step"].to_list() == run.steps
    assert run.sequences().group_by("step").len().sort("step")["len"].to_list() == [3, 3, 3, 2, 2, 2]
    assert run.metrics(("group_id",))["mismatch/tokens"].sum() == run.metrics(())["mismatch/tokens"][0]
    assert run.shadowed == (Shadow(attempt=0, by=1, first_step=18, last_step=20, steps=2),)
    assert run.metrics(("attempt",))["attempt"].to_list() == [0, 1]
    assert run.conservation.written == 15 + 6


def test_an_attempt_that_starts_while_the_run_is_open_hides_the_old_steps(tmp_path: Path) -> None:
    first = FakeWriter(tmp_path / "run", "r00000-host-1-aaaaaa").open()
    for rows in STEPS:
        first.step(rows)
    run = open_run(tmp_path / "run")
    assert len(run.metrics()) == 6
    second = FakeWriter(tmp_path / "run", "r00000-host-2-bbbbbb", attempt=1).open()
    second.step(STEPS[2].slice(0, 1))
    assert run.refresh()
    assert run.steps == [12, 14, 16] and run.metrics()["mismatch/sequences"].to_list() == [3, 3, 1]


ATTEMPTS = st.dictionaries(st.integers(0, 5), st.sets(st.integers(0, 12), min_size=1), max_size=5)


@given(ATTEMPTS)
def test_every_step_is_shown_by_one_attempt_and_the_last_is_shown_whole(steps: dict[int, set[int]]) -> None:
    found = cutoffs([WriterSteps(f"w{attempt}", attempt, own) for attempt, own in steps.items()])

    def is_shown(attempt: int, step: int) -> bool:
        cutoff = found.of(attempt, [f"w{attempt}"])
        return cutoff is None or step < cutoff.step

    shown = [(attempt, step) for attempt, own in steps.items() for step in own if is_shown(attempt, step)]
    assert len({step for _, step in shown}) == len(shown)
    if steps:
        assert {step for attempt, step in shown if attempt == max(steps)} == steps[max(steps)]
    in_order = sorted(shown, key=lambda pair: pair[1])
    assert [attempt for attempt, _ in in_order] == sorted(attempt for attempt, _ in in_order)


def test_two_writers_of_one_attempt_add_up(tmp_path: Path) -> None:
    first, writer = (FakeWriter(tmp_path / "run", f"r0000{rank}-host-1-aaaaaa", rank).open() for rank in range(2))
    for rank, each in enumerate((first, writer)):
        for rows in STEPS:
            each.step(rows.slice(rank, 1))
    run = open_run(tmp_path / "run")
    assert run.unsettled == []
    writer.step(STEPS[-1].slice(2, 1))
    late = run_folders.replaced(STEPS[-1].slice(0, 1), "step", pa.array([24]))
    writer.step(late)
    assert run.refresh() and run.unsettled == [24], "rank 0 has not come to it yet"
    assert run.shadowed == () and run.metrics()["mismatch/sequences"].to_list() == [2] * 5 + [3, 1]
    per_minibatch = run.metrics(("step", "minibatch")).filter(pl.col("minibatch") == "0")
    assert per_minibatch["total/sequences"].to_list() == [2] * 5 + [3, 1]
