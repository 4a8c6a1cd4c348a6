"""`compact` and `prune`: fewer files, the same run. Killed at any call of the filesystem, the run reads as before or as after."""

import json
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import real_runs, run_folders
from support.recorded import recorded
from support.run_folders import FakeWriter, by_step, only
from support.upkeep import demand_equal, killed_at, told

from ratioscope import open_run
from ratioscope.app.cli import OK, UNREADABLE, main
from ratioscope.app.upkeep.maintenance import compact, prune, repair
from ratioscope.errors import SourceError
from ratioscope.ingest.maintenance.pruning import Old
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.process import host_name, pid_namespace

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=4, rows=6)
TINY = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=1, rows=2)
Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def of_many_ranks(root: Path) -> Path:
    return run_folders.write_run(root, SMALL, writers=3, segment_steps=2)


def resumed(root: Path) -> Path:
    """Two attempts, of which the second writes the last two steps of the first again; events, drops, an open writer."""
    steps = by_step(SMALL)
    for attempt, own in ((0, steps), (1, steps[2:])):
        for rank in range(2):
            name = f"r{rank:05d}-gone-{attempt}-aaaaaa"
            writer = FakeWriter(root, name, rank, attempt, segment_steps=2).open()
            for rows in own:
                writer.step(rows.take(list(range(rank, len(rows), 2))))
            writer.event("weight_sync", 14).drop(16, 2, 30, "queue full")
            if rank:
                writer.close()
    return root


def split(root: Path) -> Path:
    """The two sides of the gaps lie with different processes, and the facts with one of them."""
    sampler, trainer = (
        FakeWriter(root, "r00000-host-1-aaaaaa").open(),
        FakeWriter(root, "r00001-host-1-bbbbbb", 1).open(),
    )
    for rows in by_step(SMALL):
        sampler.step(only(rows, ("rollout", "old")))
        trainer.step(only(rows, ("current",), minibatch=0))
    sampler.close()
    trainer.close()
    return root


def in_parts(root: Path) -> Path:
    """Each step comes in two parts of one writer."""
    writer = FakeWriter(root).open()
    for rows in by_step(SMALL):
        writer.step(rows.slice(0, 2))
        writer.step(rows.slice(2))
    writer.close()
    return root


RUNS = {made.__name__: made for made in (of_many_ranks, resumed, split, in_parts)}
Told = dict[str, Any]
Copied = Callable[[str], tuple[Path, Told]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Copied:
    """Each of the RUNS, and everything it tells; written and read once, which takes longer than most tests here."""

    @cache
    def once(name: str) -> tuple[Path, Told]:
        root = RUNS[name](tmp_path_factory.mktemp(name) / "run")
        return root, told(root)

    return once


@pytest.fixture
def copied(written: Copied, tmp_path: Path) -> Copied:
    """A copy of one of the RUNS, and everything it tells."""

    def copy(name: str) -> tuple[Path, Told]:
        root, before = written(name)
        return Path(shutil.copytree(root, tmp_path / "run")), before

    return copy


def token_files(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.glob("tokens/*/*.parquet"))


@pytest.mark.parametrize("name", RUNS)
def test_nothing_that_a_run_tells_changes_when_its_files_are_merged_and_the_old_ones_deleted(
    copied: Copied, name: str
) -> None:
    root, before = copied(name)
    files = len(list(root.rglob("*.parquet")))
    done = compact(root)
    assert done.written and not done.skipped and done.replaced > len(done.written)
    demand_equal(told(root), before)
    assert verify(root, deep=True).sound
    freed = prune(root, yes=True)
    assert len(freed.files) == done.replaced and freed.bytes > 0 and not freed.skipped
    demand_equal(told(root), before)
    assert len(list(root.rglob("*.parquet"))) == files - done.replaced + len(done.written)
    assert verify(root, deep=True).sound
    assert not compact(root).written and not prune(root, yes=True).files


def test_a_run_in_which_nothing_can_be_merged_is_not_touched(tmp_path: Path) -> None:
    root = recorded("trl_vllm_stale4", tmp_path / "run", steps=3)
    assert not compact(root).written  # one file a step, one segment: nothing to gain
    assert not list(root.glob("commits/offline-*"))


def test_merging_again_takes_in_what_came_since(copied: Copied) -> None:
    root, _ = copied("of_many_ranks")
    compact(root)
    prune(root, yes=True)
    late = FakeWriter(root, "r00009-host-9-cccccc", 9).open()
    rows = by_step(SMALL)[0]
    late.step(run_folders.replaced(rows, "sequence_id", pa.array([f"late-{k}" for k in range(len(rows))])))
    late.close()
    before = told(root)
    compact(root)
    demand_equal(told(root), before)
    prune(root, yes=True)
    demand_equal(told(root), before)
    assert len(token_files(root)) == 4 and verify(root, deep=True).sound


def test_a_merged_file_that_is_damaged_gives_way_to_the_files_it_replaced(copied: Copied) -> None:
    root, before = copied("of_many_ranks")
    for victim in compact(root).written:
        (root / victim).write_bytes(b"no longer")
    assert not prune(root, yes=True).files
    run = open_run(root)
    run.metrics()  # damage is noticed when a file is first needed
    run.sequences()
    demand_equal(told(run), before, but=("quarantined",))
    assert len(run.quarantined) == 5


def test_merged_statistics_that_are_lost_are_computed_from_the_merged_rows(copied: Copied) -> None:
    root, before = copied("of_many_ranks")
    compact(root)
    prune(root, yes=True)
    for segment in root.glob("statistics/*"):
        segment.unlink()
    # a standard error of weights that hardly vary: a difference of nearly equal sums
    demand_equal(told(root), before, but=("quarantined", "digest"), rounding=1e-6)


def test_merged_files_are_read_without_their_log_and_count_once(copied: Copied) -> None:
    root, before = copied("of_many_ranks")
    compact(root)
    for log in root.glob("commits/offline-*"):
        log.unlink()
    demand_equal(told(root), before)


def test_two_merges_of_the_same_files_count_once(tmp_path: Path, copied: Copied) -> None:
    root, before = copied("of_many_ranks")
    shutil.copytree(root, tmp_path / "other")
    compact(root)
    compact(tmp_path / "other")
    shutil.copytree(tmp_path / "other", root, dirs_exist_ok=True)
    demand_equal(told(root), before)
    prune(root, yes=True)
    demand_equal(told(root), before)


@pytest.mark.parametrize("act", [compact, lambda root: prune(root, yes=True)], ids=["compact", "prune"])
def test_killed_at_any_call_the_run_reads_the_same_and_the_next_call_ends_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Path], object]
) -> None:
    clean = run_folders.write_run(tmp_path / "clean", TINY, writers=2)
    before = told(clean)
    if act is not compact:
        compact(clean)
    call, made = 0, [0]
    while made[0] >= call:
        call += 1
        root = tmp_path / "killed"
        shutil.copytree(clean, root)
        with killed_at(call, monkeypatch) as made:
            act(root)
        run = open_run(root)
        assert (run.digest, run.size.rows) == (before["digest"], before["rows"][0]) and not run.quarantined, call
        if call % 16 == 1:
            compact(root)
            prune(root, yes=True)
            demand_equal(told(root), before)
            assert len(token_files(root)) == 1 and not open_run(root).uncommitted
        shutil.rmtree(root)
    assert call > 10


def test_a_reader_that_follows_the_run_comes_through_compact_and_prune(copied: Copied) -> None:
    root, before = copied("of_many_ranks")
    follower = open_run(root)
    compact(root)
    prune(root, yes=True)
    assert len(follower.sequences()) == 0 and follower.quarantined  # it still looks for the files that were there
    assert follower.refresh()
    demand_equal(told(follower), before)


def test_every_torn_length_of_the_log_of_a_merge_gives_the_same_run(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", TINY, writers=2, segment_steps=1)
    before = open_run(root)
    wanted = before.digest, before.size.rows, before.metrics()
    compact(root)
    log = next(root.glob("commits/offline-*"))
    whole = log.read_bytes()
    for length in range(0, len(whole), 61):
        log.write_bytes(whole[:length])
        run = open_run(root)
        assert (run.digest, run.size.rows) == wanted[:2] and not run.quarantined, length


def test_a_run_that_is_being_written_is_refused_with_the_reason(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL, writers=2)
    alive = FakeWriter(root, "r00005-here-1-dddddd", 5)
    own = {"host": host_name(), "namespace": pid_namespace(), "pid": os.getpid()}
    alive.say(kind="open", writer=alive.writer, rank=5, attempt=0, **own)
    for act in (compact, lambda path: prune(path, yes=True)):
        with pytest.raises(SourceError, match=f"process {os.getpid()} is alive"):
            act(root)
    assert compact(root, writers_ended=True).written


def test_token_rows_of_old_steps_go_and_their_statistics_stay(copied: Copied) -> None:
    root, _ = copied("of_many_ranks")
    run = open_run(root)
    metrics, steps, counts = run.metrics(), run.steps, run.conservation
    would = prune(root, Old(keep_steps=1), yes=False)
    assert would.steps == steps[:3] and len(token_files(root)) == 12
    done = prune(root, Old(keep_steps=1), yes=True)
    assert (done.steps, done.bytes) == (would.steps, would.bytes)
    run = open_run(root)
    assert run.steps == steps and run.conservation == counts and not run.quarantined
    assert run.metrics().equals(metrics)
    assert len(run.sequences(steps[0])) == 0 and len(run.sequences(steps[-1])) == 6
    assert f"token rows of 3 steps from {steps[0]} to {steps[2]} were pruned; their statistics are kept" in run.notes
    assert verify(root, deep=True).sound


def test_merged_rows_of_old_steps_go_with_what_they_replaced(copied: Copied) -> None:
    root, _ = copied("of_many_ranks")
    metrics = open_run(root).metrics()
    compact(root)
    prune(root, Old(keep_steps=0), yes=True)
    assert not token_files(root)
    run = open_run(root)
    assert not run.quarantined and not run.uncommitted
    demand_equal({"metrics": run.metrics()}, {"metrics": metrics})


def test_rows_without_which_a_metric_would_be_lost_are_kept(copied: Copied) -> None:
    root, before = copied("split")
    done = prune(root, Old(keep_steps=0), yes=True)
    assert not done.files and "measured of rows of several processes together" in done.skipped[0].reason
    assert "`ratioscope compact RUN` first" in done.skipped[0].reason
    demand_equal(told(root), before)


def test_rows_whose_statistics_are_lost_are_kept_and_repair_is_named(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    writer.step(TINY, with_statistics=False)
    writer.close()
    done = prune(tmp_path / "run", Old(keep_steps=0), yes=True)
    assert not done.files and "`ratioscope repair RUN` first" in done.skipped[0].reason
    repair(tmp_path / "run", dry_run=False)
    assert prune(tmp_path / "run", Old(keep_steps=0), yes=True).files


def test_what_no_process_could_measure_alone_outlives_the_rows_once_it_is_compacted(copied: Copied) -> None:
    root, _ = copied("split")
    before = open_run(root)
    wanted = {by: before.metrics(by) for by in (("step",), ("step", "lag"), ())}
    compact(root)
    assert not prune(root, Old(keep_steps=0), yes=True).skipped and not token_files(root)
    run = open_run(root)
    assert set(run.gaps) == set(before.gaps) and run.exact() and not run.notes[1:]
    for by, frame in wanted.items():
        demand_equal({"metrics": run.metrics(by)}, {"metrics": frame})


def test_rows_that_come_after_a_step_was_measured_together_are_measured_with_it(copied: Copied) -> None:
    root, _ = copied("split")
    compact(root)
    prune(root, yes=True)
    late = FakeWriter(root, "r00009-host-9-cccccc", 9).open()
    rows = by_step(SMALL)[0]
    rows = run_folders.replaced(rows, "sequence_id", pa.array([f"late-{k}" for k in range(len(rows))]))
    late.step(only(rows, ("rollout", "old")))
    late.step(only(rows, ("current",), minibatch=0), with_statistics=False)
    late.close()
    assert open_run(root).metrics()["total/sequences"][0] == 2 * len(rows)


def test_only_rows_that_are_old_enough_go(copied: Copied) -> None:
    root, _ = copied("of_many_ranks")
    assert not prune(root, Old(before=run_folders.TIME), yes=False).files
    assert len(prune(root, Old(before=run_folders.TIME + 1e6), yes=False).steps) == 4
    assert len(prune(root, Old(keep_steps=3, before=run_folders.TIME + 1e6), yes=False).steps) == 1


def test_the_commands_say_what_they_did(copied: Copied, capsys: Captured) -> None:
    root, _ = copied("of_many_ranks")
    assert main(["compact", str(root)]) == OK
    assert "18 files merged into 5" in capsys.readouterr().out
    assert main(["prune", str(root)]) == OK
    assert "18 files" in (out := capsys.readouterr().out) and "would be deleted" in out and "--yes" in out
    assert main(["prune", str(root), "--yes", "--json"]) == OK
    assert (plain := json.loads(capsys.readouterr().out))["deleted"] is True and len(plain["files"]) == 18
    assert main(["prune", str(root), "--keep-steps", "1", "--yes"]) == OK
    assert "with them the token rows of 3 steps" in capsys.readouterr().out
    assert main(["compact", str(root)]) == OK and "nothing to merge" in capsys.readouterr().out
    assert main(["compact", str(root / "absent")]) == UNREADABLE
