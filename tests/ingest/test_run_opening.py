"""What is no run is told apart from a run, with what was found, what was wanted, and what to try."""

import json
import os
from pathlib import Path

import pytest
from support import real_runs, run_folders

from ratioscope import Run, open_run
from ratioscope.app.upkeep.maintenance import repair
from ratioscope.errors import SourceError
from ratioscope.ingest.files.folder import runs_in
from ratioscope.record import SCHEMA_VERSION

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=2, rows=3)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_a_path_that_does_not_exist_suggests_a_near_one(tmp_path: Path) -> None:
    run_folders.write_run(tmp_path / "tonight", SMALL)
    with pytest.raises(SourceError, match=r"tonigth does not exist; did you mean .*tonight; .*ratioscope demo"):
        open_run(tmp_path / "tonigth")


def test_a_file_points_to_the_run_it_lies_in(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    inside = next(root.glob("tokens/*/*.parquet"))
    with pytest.raises(SourceError, match=rf"is a file, wanted a run folder; it lies in the run {root}"):
        open_run(inside)
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(SourceError, match=r"notes.txt is a file, wanted a run folder; a run folder holds run.json"):
        open_run(tmp_path / "notes.txt")


def test_a_path_may_be_text(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    assert Run(str(root)).steps == open_run(str(root)).steps == Run(root).steps
    assert Run(str(root)).steps


def test_a_device_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="is no folder, wanted a run folder"):
        open_run(os.devnull)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SourceError, match="is no folder"):
        open_run(tmp_path / "pipe")


def test_an_empty_folder_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(SourceError, match=r"is an empty folder: nothing has been recorded.*ratioscope demo"):
        open_run(tmp_path / "empty")


def test_a_folder_of_runs_names_them(tmp_path: Path) -> None:
    for name in ("b", "a"):
        run_folders.write_run(tmp_path / "runs" / name, SMALL)
    assert [run.name for run in runs_in(tmp_path / "runs")] == ["a", "b"]
    for folder in (tmp_path / "runs", tmp_path):
        with pytest.raises(SourceError, match=r"is no run, but holds runs: open .*runs/a, .*runs/b"):
            open_run(folder)


def test_any_other_folder_is_described(tmp_path: Path) -> None:
    (tmp_path / "my other").mkdir()
    (tmp_path / "my other" / "step_1.jsonl").write_bytes(b"x")
    with pytest.raises(
        SourceError,
        match=r"it holds step_1.jsonl; if a trainer wrote them: ratioscope import '.*my other' -o RUN; a run folder holds .*demo",
    ):
        open_run(tmp_path / "my other")
    with pytest.raises(SourceError, match=r"it holds my other; if a trainer wrote them: ratioscope import"):
        open_run(tmp_path)  # as W&B's folder: nothing but folders and links lies in it
    (tmp_path / "bare" / "empty").mkdir(parents=True)
    with pytest.raises(SourceError, match=r"is no run: it holds empty; a run folder holds .*demo"):
        open_run(tmp_path / "bare")


@pytest.mark.parametrize("path", ["nul\0byte", "x" * 5000])
def test_an_impossible_path_is_a_source_error(path: str) -> None:
    with pytest.raises(SourceError, match="cannot be opened"):
        open_run(path)


def test_a_newer_schema_is_refused_politely(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    run_folders.write_run_file(root, schema_version=SCHEMA_VERSION + 1)
    with pytest.raises(
        SourceError, match=rf"schema version {SCHEMA_VERSION + 1}; .* up to {SCHEMA_VERSION}: .* pip install \."
    ):
        open_run(root)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "run.json is missing"),
        ('{"name": "\\ud800", "schema_version": 1}', None),
    ],
)
def test_a_missing_run_file_is_a_note(tmp_path: Path, content: str | None, reason: str | None) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    (root / "run.json").unlink()
    if content is not None:
        (root / "run.json").write_text(content)
    run = open_run(root)
    assert len(run.metrics()) == 2
    if reason is not None:
        assert run.name == "run" and any(note.startswith(reason) for note in run.notes)
    assert run.name.encode()


def test_a_run_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    (tmp_path / "secret.json").write_text(json.dumps({"name": "secret"}))
    (root / "run.json").unlink()
    (root / "run.json").symlink_to(tmp_path / "secret.json")
    assert open_run(root).name == "run"


def test_a_run_in_which_nothing_was_committed_yet_opens(tmp_path: Path) -> None:
    writer = run_folders.FakeWriter(tmp_path / "run").open()
    run = open_run(tmp_path / "run")
    assert run.steps == [] and run.gaps == () and len(run.metrics()) == 0 and len(run.statistics()) == 0
    assert len(run.metrics(("lag",))) == 0 and len(run.metrics(())) == 0 and len(run.metrics(("group_id",))) == 0
    assert len(run.sequences()) == 0 and run.tokens().collect().is_empty() and run.records().collect().is_empty()
    assert len(run.distribution("token", "mismatch")) == 0 and run.columns == frozenset()
    with pytest.raises(SourceError, match="step 3 is not on record; the run run has no steps"):
        run.sequences(3)
    for rows in run_folders.by_step(SMALL):
        writer.step(rows)
    assert run.refresh() and len(run.metrics()) == 2


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("bad", r"cannot be read: Expecting value: line 1 .*"),
        ("[" * 100_000, "cannot be read"),
        ("[1]", r"holds no object but '\[1\]'"),
        ("{}", r"has no member, and none of attempts, schema_version"),
        ('{"id": 4, "name": "a", "seed": 1}', r"has id, name, seed, and none of attempts, schema_version"),
    ],
)
def test_a_run_file_that_is_none_is_an_error_until_it_is_set_aside(tmp_path: Path, text: str, found: str) -> None:
    root = run_folders.write_run(tmp_path / "run", SMALL)
    (root / "run.json").write_text(text)
    with pytest.raises(SourceError, match=rf"run.json {found}.*; wanted .*: move the file away; .* `ratioscope repair"):
        open_run(root)
    assert [line.split(" moved to ")[0] for line in repair(root, dry_run=False)] == ["run.json"]
    assert len(open_run(root).metrics()) == 2 and (root / "quarantine" / "run.json").read_text() == text


@pytest.mark.parametrize(
    ("text", "found"),
    [("bad", r"cannot be read: Expecting value: line 1 .*"), ('{"seed": 1}', r"has seed, and none of attempts, .*")],
)
def test_a_broken_run_file_with_nothing_beside_it_is_no_run(tmp_path: Path, text: str, found: str) -> None:
    (tmp_path / "run.json").write_text(text)
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "offline-host-1-aaaaaa.jsonl").write_text("")  # a note of before this was an error
    with pytest.raises(
        SourceError, match=rf"run.json {found}, and nothing is recorded beside it; wanted .*: move the file away"
    ):
        open_run(tmp_path)


def test_a_run_that_has_only_begun_opens(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text('{"name": "tonight", "schema_version": 1}')
    assert open_run(tmp_path).steps == []
