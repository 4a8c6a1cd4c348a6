"""Starts that recorded into one folder: what a later one hides is named truly, and each can be shown by itself."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import open_run
from ratioscope.app.presentation.unavailable import replaced
from ratioscope.errors import SourceError

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=3))
FIRST, SECOND, THIRD, LAST = (rows["step"][0].as_py() for rows in (STEPS[0], STEPS[1], STEPS[2], STEPS[-1]))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Six steps, then another experiment of two steps in the same folder."""
    root = tmp_path / "two"
    for attempt, steps in enumerate((STEPS, STEPS[:2])):
        writer = FakeWriter(root, f"r00000-host-{attempt}-aaaaaa", attempt=attempt).open()
        for rows in steps:
            writer.step(rows.slice(0, 3 - attempt))
    run = json.loads((root / "run.json").read_text())
    later = {"attempt": 1, "config": {"lr": 5.0}, "trainer": "other 2"}
    settings = {"config": {"lr": 1.0}, "trainer": "loop 1", "attempts": [{"attempt": 0}, later]}
    (root / "run.json").write_text(json.dumps({**run, **settings}))
    return root


def test_only_steps_that_were_written_again_are_said_to_be(two: Path) -> None:
    words = [": ".join(replaced(old)) for old in open_run(two).shadowed]
    assert words == [
        f"2 steps from {FIRST} to {SECOND} of attempt 0, 6 rows: written again by attempt 1",
        f"4 steps from {THIRD} to {LAST} of attempt 0, 12 rows: attempt 1 began again at step {FIRST}; --attempt 0 shows them",
    ]


def test_a_resume_hides_the_dead_steps_while_it_catches_up(two: Path) -> None:
    run = open_run(two)
    assert run.steps == [FIRST, SECOND]
    FakeWriter(two, "r00000-host-2-aaaaaa", attempt=2).open().step(STEPS[4])
    assert run.refresh() and run.steps == [FIRST, SECOND, STEPS[4]["step"][0].as_py()]
    apart = [(old.by, old.steps) for old in run.shadowed if not old.is_again]
    assert apart == [(1, 3)] and (2, 1) in [(old.by, old.steps) for old in run.shadowed if old.is_again]


def test_a_start_shown_by_itself_has_its_own_steps_rows_and_settings(two: Path) -> None:
    first, second = (open_run(two, attempt=attempt) for attempt in (0, 1))
    assert (len(first.steps), len(second.steps)) == (6, 2)
    assert first.metrics()["mismatch/sequences"].to_list() == [3] * 6
    assert (first.conservation.offered, second.conservation.offered) == (18, 4)
    assert first.shadowed == second.shadowed == () and first.uncommitted == []
    assert (first.info["config"], second.info["config"]) == ({"lr": 1.0}, {"lr": 5.0})
    assert second.info["trainer"] == "other 2" and second.writers["attempt"].to_list() == [1]


def test_the_settings_shown_are_those_of_the_first_start_whose_steps_are(two: Path) -> None:
    assert open_run(two).info["config"] == {"lr": 5.0}
    earlier = run_folders.replaced(STEPS[0], "step", pa.array([0] * len(STEPS[0])))
    FakeWriter(two, "r00000-host-0-bbbbbb", attempt=0).open().step(earlier)
    assert open_run(two).info["config"] == {"lr": 1.0}, "a step of the first start is shown"


def test_a_start_that_was_not_made_is_an_error(two: Path) -> None:
    with pytest.raises(SourceError, match=r"attempt 7 is not on record; .*two has 0, 1"):
        open_run(two, attempt=7)
