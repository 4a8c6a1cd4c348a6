"""Two writers that claim the same rows are named by every reader; parts of a row, and replayed minibatches, are no such claim."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import open_run
from ratioscope.app.pages.quality import quality
from ratioscope.ingest.analysis.info import info
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.rows.claims import MOST_STEPS, Claims, _few

RECORDS = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)
STEPS = run_folders.by_step(RECORDS)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def two_writers(root: Path) -> list[FakeWriter]:
    return [FakeWriter(root, f"r0000{place}-host-{place}-aaaaaa", place).open() for place in range(2)]


def test_two_writers_that_claim_the_same_rows_are_named_by_every_reader(tmp_path: Path) -> None:
    first, second = two_writers(tmp_path / "run")
    for rows in STEPS:
        first.step(rows)
        second.step(rows.slice(0, 3))
    run = open_run(tmp_path / "run")
    assert run.claims == Claims(9, (18, 20, 22), 3, 3, (first.writer, second.writer))
    assert info(run)["claimed_twice"] == 9
    for notes in (run.notes, quality(run, run.metrics()).notes):
        (note,) = (note for note in notes if "claim the same sequences" in note)
        assert note.startswith("9 rows of 3 steps") and "rank=rank" in note
    troubles = [trouble for trouble in verify(tmp_path / "run").troubles if "of another row" in trouble.found]
    assert [trouble.file[-2:] for trouble in troubles] == ["18", "20", "22"]


def test_one_writer_that_gives_two_samples_one_id_is_told_of_ids_and_not_of_ranks(tmp_path: Path) -> None:
    writer, _ = two_writers(tmp_path / "run")
    for _ in range(2):
        writer.step(STEPS[0])
    (note,) = (note for note in open_run(tmp_path / "run").notes if "of another row" in note)
    assert f"{writer.writer} claims sequences twice" in note and "sequence_ids=" in note and "rank=" not in note
    (trouble,) = (trouble for trouble in verify(tmp_path / "run").troubles if "of another row" in trouble.found)
    assert "sequence_ids=" in trouble.advice


def test_parts_of_rows_are_claimed_by_nobody_twice(tmp_path: Path) -> None:
    driver, worker = two_writers(tmp_path / "run")
    for rows in STEPS:
        driver.step(run_folders.only(rows, ("rollout", "old")), with_statistics=False)
        worker.step(run_folders.only(rows, ("current",)), with_statistics=False)  # other columns of the same row
        worker.step(run_folders.only(rows, ("current",), minibatch=1), with_statistics=False)  # a replay
    run = open_run(tmp_path / "run")
    assert run.claims.rows == 0 and not any("of another row" in t.found for t in verify(tmp_path / "run").troubles)


def test_slices_of_sequences_are_claimed_by_nobody_twice(tmp_path: Path) -> None:
    rows = STEPS[0]
    slices = pa.array(
        [list(range(length)) for length in run_folders.lengths(rows)], rows.schema.field("positions").type
    )
    for writer in two_writers(tmp_path / "run"):
        writer.step(run_folders.replaced(rows, "positions", slices), with_statistics=False)
    assert open_run(tmp_path / "run").claims.rows == 0


def test_ranks_with_rows_of_their_own_claim_none_twice(tmp_path: Path) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", RECORDS, writers=2))
    assert run.claims == Claims(0, (), 3, 3, ()) and run.notes == ()


def test_the_count_is_that_of_a_walk_over_all_pairs(tmp_path: Path) -> None:
    chance = random.Random(5)
    first, second = two_writers(tmp_path / "run")
    for rows in STEPS:
        mine, theirs = (sorted(chance.sample(range(len(rows)), 3)) for _ in range(2))
        first.step(rows.take(mine))
        second.step(rows.take(theirs))
    run = open_run(tmp_path / "run")
    every = run.records().collect().select("step", "minibatch", "sequence_id")
    assert run.claims.rows == len(every) - len(every.unique())


def test_a_step_more_leaves_the_steps_that_are_checked_as_they_are_but_for_the_last() -> None:
    renewed, before = 0, list[int]()
    for count in range(1, 1000):
        chosen = _few(range(count), {step: () for step in range(count)})
        assert chosen[0] == 0 and chosen[-1] == count - 1 and len(chosen) <= min(count, MOST_STEPS)
        assert count > MOST_STEPS or len(chosen) == count
        renewed += not set(chosen) - {count - 1} <= set(before)
        before = chosen
    assert renewed == 0
