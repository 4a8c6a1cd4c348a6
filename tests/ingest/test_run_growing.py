"""A run that is being written: read by what was appended, never half a step, and equal to the same run opened afresh."""

import shutil
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal
from support import real_runs, run_folders
from support.run_folders import FakeWriter
from support.sizes import examples

from ratioscope import layout, open_run
from ratioscope.ingest.commits import commit_log
from ratioscope.ingest.files import parquet_files
from ratioscope.ingest.run import Run
from ratioscope.inside import open_regular

STALE = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=4)
STEPS = run_folders.by_step(STALE)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


def assert_same(run: Run, other: Run) -> None:
    assert run.steps == other.steps and run.gaps == other.gaps and run.quarantined == other.quarantined
    assert run.digest == other.digest and run.conservation == other.conservation and run.shadowed == other.shadowed
    for by in (("step",), ("step", "lag"), ()):
        assert_frame_equal(run.metrics(by), other.metrics(by))
    assert_frame_equal(run.statistics(), other.statistics())
    for mine, theirs in ((run.writers, other.writers), (run.events, other.events), (run.drops, other.drops)):
        assert_frame_equal(mine, theirs)


@examples(12)
@given(
    turns=st.lists(st.sampled_from(["first", "second", "event", "drop", "look"]), min_size=4, max_size=14),
    segment_steps=st.integers(1, 3),
)
def test_refresh_after_any_appends_equals_opening_afresh(
    tmp_path_factory: pytest.TempPathFactory, turns: list[str], segment_steps: int
) -> None:
    root = tmp_path_factory.mktemp("grow") / "run"
    names = {"first": "r00000-h-1-a", "second": "r00001-h-1-a"}
    writers = {name: FakeWriter(root, writer, segment_steps=segment_steps).open() for name, writer in names.items()}
    pending = {name: iter(STEPS) for name in writers}
    run = open_run(root)
    for turn in turns:
        if turn in writers and (rows := next(pending[turn], None)) is not None:
            writers[turn].step(rows.slice(0, 2) if turn == "first" else rows.slice(2))
            assert run.refresh()
        elif turn == "event":
            writers["first"].event("weight_sync", 1, "new weights")
            assert run.refresh()
        elif turn == "drop":
            writers["second"].drop(2, 3, 40, "queue full")
            assert run.refresh()
        else:
            run.metrics()
            run.metrics(("step", "lag"))
            assert not run.refresh()
    assert_same(run, open_run(root))


def test_only_what_was_appended_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded: list[bytes] = []

    def counting(line: bytes) -> object:
        decoded.append(line)
        return layout.decode_line(line)

    monkeypatch.setattr(commit_log, "decode_line", counting)
    writer = FakeWriter(tmp_path / "run", segment_steps=2).open()
    for rows in STEPS[:4]:
        writer.step(rows)
    run = open_run(tmp_path / "run")
    run.metrics()
    assert len(decoded) == 8  # it opened (for the chain too), four token files, and of two segments what was said last
    opened = _opened_files(run, monkeypatch)
    writer.step(STEPS[4])
    assert run.refresh() and len(decoded) == 10
    run.metrics()
    assert opened == [layout.statistics_file(writer.writer, 2).as_posix()]


def test_an_altered_line_is_counted_though_a_later_one_commits_the_same_segment(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS[:3]:
        writer.step(rows)
    log = tmp_path / "run" / layout.commit_file(writer.writer)
    lines = log.read_bytes().splitlines(keepends=True)
    first = next(place for place, line in enumerate(lines) if b'"steps": ' in line)
    lines[first] = lines[first].replace(b'"steps": [', b'"steps": [9')
    log.write_bytes(b"".join(lines))
    run = open_run(tmp_path / "run")
    assert any("1 altered lines" in note for note in run.notes)
    assert len(run.metrics()) == 3 and not run.quarantined


def _opened_files(run: Run, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of the Parquet files opened from now on."""
    opened: list[str] = []

    def noting(root: Path, file: str) -> object:
        opened.append(file)
        return open_regular(root, file)

    monkeypatch.setattr(parquet_files, "open_regular", noting)
    return opened


def test_files_that_are_not_committed_are_no_part_of_the_run(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    writer.step(STEPS[0])
    path = writer.step(STEPS[1], commit=False)
    (writer.root / path).with_name(".half.parquet.tmp").write_bytes(b"half")
    run = open_run(writer.root)
    assert run.steps == [12] and len(run.metrics()) == 1 and not run.quarantined
    assert run.uncommitted == [path]
    records = STEPS[1]
    data = (writer.root / path).read_bytes()
    writer.say(**{**run_folders.committed(Path(path), data), **run_folders.token_facts(records)})
    assert run.refresh() and run.steps == [12, 14] and run.uncommitted == []


def test_a_segment_that_was_replaced_before_its_commit_shows_the_committed_steps(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    for rows in STEPS[:2]:
        writer.step(rows)
    before = open_run(writer.root).metrics()
    writer.step(STEPS[2], commit=False)  # killed between the rename and the commit line
    run = open_run(writer.root)
    assert_frame_equal(run.metrics(), before)
    assert not run.quarantined and not run.notes


@examples(25)
@given(st.data())
def test_a_log_cut_anywhere_loses_no_committed_step(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("cut") / "run"
    run_folders.write_run(root, STALE.slice(0, 16), writers=2, segment_steps=2)
    whole = open_run(root).metrics()
    log = root / layout.commit_file("r00001-host-1-abcdef")
    content = log.read_bytes()
    length = data.draw(st.integers(0, len(content)))
    log.write_bytes(content[:length])
    lines = content[:length].split(b"\n")[:-1]
    kept = [entry for line in lines if (entry := layout.decode_line(line)) is not None]
    named = {entry["step"] for entry in kept if "step" in entry}
    run = open_run(root)
    torn = not content[:length].endswith(b"\n") and length > 0
    assert torn == any("unfinished last line" in note for note in run.notes)
    recovered = any("without a commit" in note for note in run.notes)
    if torn or recovered:
        assert_frame_equal(run.metrics(), whole, rel_tol=1e-12)
    complete = whole.filter(pl.col("step").is_in(sorted(named)))
    assert_frame_equal(run.metrics().filter(pl.col("step").is_in(sorted(named))), complete, rel_tol=1e-12)
    assert not run.quarantined
    log.write_bytes(content)
    assert run.refresh() == (length < len(content))
    assert_frame_equal(run.metrics(), whole, rel_tol=1e-12)
    assert not run.notes


@examples(15)
@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_an_altered_log_is_recovered_from_and_said_so(
    tmp_path_factory: pytest.TempPathFactory, place: int, bit: int
) -> None:
    root = tmp_path_factory.mktemp("alter") / "run"
    run_folders.write_run(root, STALE.slice(0, 12), segment_steps=2)
    whole = open_run(root).metrics()
    log = next(root.glob("commits/*.jsonl"))
    content = bytearray(log.read_bytes())
    content[place % len(content)] ^= 1 << bit
    log.write_bytes(content)
    run = open_run(root)
    assert_frame_equal(run.metrics(), whole, rel_tol=1e-12)
    assert len(run.sequences()) == 12
    assert any("altered line" in note or "unfinished" in note for note in run.notes)


def test_a_run_without_any_log_is_read_by_its_footers(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", STALE, writers=2)
    before = open_run(root)
    shutil.rmtree(root / "commits")
    run = open_run(root)
    for by in (("step",), ("step", "lag")):
        assert_frame_equal(run.metrics(by), before.metrics(by))
    assert run.policies == before.policies and run.gaps == before.gaps and run.size.tokens == before.size.tokens
    assert_frame_equal(
        run.records().collect().sort("step", "sequence_id"), before.records().collect().sort("step", "sequence_id")
    )
    assert any("12 token files" in note and "log that would name them is missing" in note for note in run.notes)


def test_a_torn_line_with_the_next_one_glued_to_it_loses_one_line(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    writer.step(STEPS[0])
    with writer.log.open("ab") as file:
        file.write(b'{"kind": "commit", "file": "tok')
    writer.event("resume", 13)
    run = open_run(writer.root)
    assert run.events["event"].to_list() == ["resume"] and run.steps == [12]
    assert any("1 altered line" in note for note in run.notes)


def test_a_log_that_was_copied_anew_is_read_from_its_start(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    writer.step(STEPS[0])
    run = open_run(writer.root)
    copy = writer.log.with_name("copy")
    writer.step(STEPS[1])
    shutil.copy(writer.log, copy)
    copy.replace(writer.log)  # as rsync does
    assert run.refresh()
    assert_same(run, open_run(writer.root))


def test_a_folder_that_vanished_leaves_what_was_read(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", STALE)
    run = open_run(root)
    before = run.metrics()
    shutil.rmtree(root)
    run.refresh()
    assert_frame_equal(run.metrics(), before)
    assert len(run.sequences()) == 0 and len(run.quarantined) > 0
