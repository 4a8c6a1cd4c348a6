"""`repair`: what can be restored is, nothing is invented or deleted, and doing it again does nothing."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import real_runs, run_folders
from support.run_folders import FakeWriter
from support.upkeep import demand_equal, killed_at, told

from ratioscope import Collector, open_run
from ratioscope.app.cli import FINDINGS, OK, UNREADABLE, main
from ratioscope.app.upkeep.maintenance import compact, prune, repair
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.process import host_name, pid_namespace

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)
COUNTED = ("conservation", "writers", "drops", "dropped", "events", "unsettled", "digest", "states")
"""What only the lost lines told, and what tells of files rather than of their rows."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A sound run and everything it tells; written and read once, which takes longer than most tests here."""
    root = run_folders.write_run(tmp_path_factory.mktemp("sound") / "run", SMALL, writers=2, segment_steps=2)
    return root, told(root)


@pytest.fixture
def root(written: tuple[Path, dict[str, Any]], tmp_path: Path) -> Path:
    return Path(shutil.copytree(written[0], tmp_path / "run"))


@pytest.fixture
def before(written: tuple[Path, dict[str, Any]]) -> dict[str, Any]:
    return written[1]


def first(root: Path, pattern: str) -> Path:
    return sorted(root.glob(pattern))[0]


def lost_log(root: Path) -> None:
    first(root, "commits/*").unlink()


def torn_log(root: Path) -> None:
    log = first(root, "commits/*")
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:-3]) + lines[-3][:40])


def altered_line(root: Path) -> None:
    log = first(root, "commits/*")
    log.write_bytes(log.read_bytes().replace(b'"rows": 2', b'"rows": 3', 1))


def lost_segment(root: Path) -> None:
    first(root, "statistics/*").write_bytes(b"PAR1 no more")


def killed_before_its_commit(root: Path) -> None:
    """The last step's file and statistics are whole, the lines that would name them were not written."""
    log = first(root, "commits/*")
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-3]))


DAMAGE = {act.__name__: act for act in (lost_log, torn_log, altered_line, lost_segment, killed_before_its_commit)}


@pytest.mark.parametrize("name", DAMAGE)
def test_what_was_whole_is_part_of_the_run_again_and_the_run_is_sound(
    root: Path, before: dict[str, Any], name: str
) -> None:
    DAMAGE[name](root)
    assert not verify(root).sound
    logs = {path: path.read_bytes() for path in root.glob("commits/r*")}
    would = repair(root, dry_run=True)
    assert would and not list(root.glob("commits/offline-*")) and not (root / "quarantine").exists()
    assert repair(root, dry_run=False)
    demand_equal(told(root), before, but=(*COUNTED, "quarantined"), rounding=1e-9)
    assert verify(root, deep=True).sound and not repair(root, dry_run=False)
    assert {path: path.read_bytes() for path in root.glob("commits/r*")} == logs
    assert not any("computed from token rows" in note for note in open_run(root).notes)
    compact(root)
    prune(root, yes=True)
    demand_equal(told(root), before, but=(*COUNTED, "quarantined"), rounding=1e-9)


@pytest.mark.parametrize("is_torn", [True, False])
def test_statistics_that_a_kill_left_behind_their_rows_are_not_shown_for_them(tmp_path: Path, is_torn: bool) -> None:
    """Two parts of a step; the writer ends after the second token file and before its statistics, in a line of its log or not."""
    root, ended = tmp_path / "run", tmp_path / "ended"
    logprobs = np.log([[0.5, 0.4], [0.3, 0.2]])
    with Collector(root) as collector:
        for part in (0, 1):
            collector.log(
                step=0,
                sequence_ids=[f"{part}"],
                rollout_logprobs=logprobs[part:][:1],
                old_logprobs=logprobs[part:][:1] + 0.1,
            )
            assert collector.flush()
            if part == 0:
                shutil.copytree(root, ended)
    own, complete = first(ended, "commits/*"), first(root, "commits/*").read_bytes()
    shutil.copytree(root / "tokens", ended / "tokens", dirs_exist_ok=True)
    rest = complete[len(own.read_bytes()) :]
    own.write_bytes(own.read_bytes() + (rest[:40] if is_torn else b""))
    if not is_torn:  # a whole log's files are the last word: the second part is no part of the run until it is repaired
        assert len(open_run(ended).sequences(0)) == 1
        repair(ended, dry_run=False, writers_ended=True)
    for _ in range(2):
        run = open_run(ended)
        assert len(run.sequences(0)) == 2
        columns = pl.selectors.numeric() - pl.selectors.contains("attempt")
        assert_frame_equal(run.metrics().select(columns), open_run(root).metrics().select(columns), rel_tol=1e-9)
        repair(ended, dry_run=False, writers_ended=True)
    assert verify(ended, deep=True).sound


def test_what_cannot_be_read_is_moved_aside_with_the_reason_and_counts_again_once_it_is_copied_again(
    root: Path, before: dict[str, Any]
) -> None:
    victim = first(root, "tokens/*/*")
    sound, path = victim.read_bytes(), victim.relative_to(root).as_posix()
    victim.write_bytes(sound[:-20])
    (root / "statistics" / "notes.txt").write_text("hello")
    repair(root, dry_run=False)
    assert (root / "quarantine" / path.replace("/", "__")).read_bytes() == sound[:-20]
    assert (root / "quarantine" / "statistics__notes.txt").read_text() == "hello"
    run = open_run(root)
    reasons = {item.path: item.reason for item in run.quarantined}
    assert reasons[path].startswith("moved to quarantine/") and "bytes, its commit states" in reasons[path]
    assert run.steps == before["steps"] and run.metrics().equals(before["metrics"])
    assert verify(root).sound
    victim.write_bytes(sound)
    demand_equal(told(root), before, but=("quarantined",))


def test_a_step_whose_files_are_all_moved_still_shadows_the_older_attempt(tmp_path: Path) -> None:
    root = tmp_path / "run"
    steps = run_folders.by_step(SMALL)
    old, new = (FakeWriter(root, f"r00000-host-{k}-aaaaaa", 0, k, segment_steps=1).open() for k in (0, 1))
    for rows in steps:
        old.step(rows)
    files = [new.step(rows) for rows in steps[1:]]
    new.close()
    shadowed = open_run(root).shadowed
    for path in (root / files[0], root / "statistics" / "r00000-host-1-aaaaaa.000000.parquet"):
        path.write_bytes(b"gone")
    repair(root, dry_run=False)
    run = open_run(root)
    assert run.shadowed == shadowed and len(run.sequences(steps[1]["step"][0].as_py())) == 0


def test_a_missing_file_is_not_invented(root: Path) -> None:
    victim = first(root, "tokens/*/*")
    victim.unlink()
    assert not repair(root, dry_run=False)
    assert [trouble.file for trouble in verify(root).troubles] == [victim.relative_to(root).as_posix()]


def test_statistics_are_not_restored_from_rows_that_are_not_all_there(root: Path) -> None:
    lost_segment(root)
    writer = FakeWriter(root, first(root, "commits/*").stem)
    writer.drop(None, 1, 10, "queue full")
    assert all("moved to" in line for line in repair(root, dry_run=False))
    assert any("computed from token rows" in note for note in noted(root))


def noted(root: Path) -> tuple[str, ...]:
    run = open_run(root)
    run.metrics()
    return run.notes


def test_files_that_were_being_written_go_and_others_with_a_dot_stay(root: Path) -> None:
    temporary = root / "statistics" / ".r00000-host-1-abcdef.000000.parquet.4711-139"
    other = root / "statistics" / ".DS_Store"
    temporary.write_bytes(b"half")
    other.write_bytes(b"mine")
    assert len(repair(root, dry_run=False)) == 1
    assert not temporary.exists() and other.exists()


@pytest.mark.parametrize("name", ["torn_log", "lost_segment"])
def test_killed_at_any_call_nothing_is_lost_and_the_next_repair_ends_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    clean = run_folders.write_run(tmp_path / "clean", SMALL.slice(0, 4), writers=2)
    metrics = open_run(clean).metrics()
    DAMAGE[name](clean)
    broken = open_run(clean)
    rows = broken.size.rows
    call, made = 0, [0]
    while made[0] >= call:
        call += 1
        root = tmp_path / "killed"
        shutil.copytree(clean, root)
        with killed_at(call, monkeypatch) as made:
            repair(root, dry_run=False)
        assert open_run(root).size.rows == rows
        if call % 5 == 1:
            repair(root, dry_run=False)
            demand_equal({"metrics": open_run(root).metrics()}, {"metrics": metrics}, rounding=1e-9)
            assert verify(root).sound
        shutil.rmtree(root)
    assert call > 5


def test_the_command_says_what_it_did(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["repair", str(root)]) == OK and capsys.readouterr().out == "nothing to repair\n"
    lost_segment(root)
    assert main(["verify", str(root)]) == FINDINGS and "ratioscope repair" in capsys.readouterr().out
    assert main(["repair", str(root), "--dry-run"]) == OK
    assert "nothing was changed" in capsys.readouterr().out
    assert main(["repair", str(root), "--json"]) == OK
    done = json.loads(capsys.readouterr().out)["done"]
    assert "moved to quarantine/" in done[0] and "computed from token rows" in done[1]
    assert main(["repair", str(root / "absent")]) == UNREADABLE


def test_a_run_that_is_being_written_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    alive = FakeWriter(root, "r00005-here-1-dddddd", 5)
    own = {"host": host_name(), "namespace": pid_namespace(), "pid": os.getpid()}
    alive.say(kind="open", writer=alive.writer, rank=5, attempt=0, **own)
    assert main(["repair", str(root)]) == UNREADABLE
    assert "is alive" in capsys.readouterr().err
    assert main(["repair", str(root), "--writers-ended"]) == OK
