"""The runs below a folder: all of them, nothing else, and never more than the limits allow."""

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.run_folders import FakeWriter, write_run_file
from support.sizes import examples

from ratioscope.ingest.files import run_tree
from ratioscope.ingest.files.run_tree import RunTree, runs_below


def test_runs_are_found_at_every_depth_and_in_one_order(tmp_path: Path) -> None:
    for name in ("b/seed1", "a", "b/seed0", "deep/er/run"):
        write_run_file(tmp_path / name)
    (tmp_path / "notes").mkdir()
    found = runs_below(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found.runs] == ["a", "b/seed0", "b/seed1", "deep/er/run"]
    assert found.note == "" and found.left_out == found.unreadable == found.links == 0


def test_a_root_that_is_a_run_is_its_own_only_run(tmp_path: Path) -> None:
    write_run_file(tmp_path)
    write_run_file(tmp_path / "checkpoints" / "inner")
    assert runs_below(tmp_path).runs == (tmp_path,)


def test_a_run_is_not_entered_and_one_without_run_json_is_found(tmp_path: Path) -> None:
    FakeWriter(tmp_path / "old").open().close()
    (tmp_path / "old" / "run.json").unlink()
    write_run_file(tmp_path / "old" / "tokens" / "planted")
    assert runs_below(tmp_path).runs == (tmp_path / "old",)


def test_folders_named_like_those_of_a_run_are_looked_into(tmp_path: Path) -> None:
    write_run_file(tmp_path / "tokens" / "run")
    (tmp_path / "commits").mkdir()
    assert runs_below(tmp_path).runs == (tmp_path / "tokens" / "run",)


def test_no_link_is_followed_and_links_are_counted(tmp_path: Path) -> None:
    outside, inside = tmp_path / "outside", tmp_path / "inside"
    write_run_file(outside / "secret")
    write_run_file(inside / "own")
    (inside / "link").symlink_to(outside)
    (inside / "loop").symlink_to(inside)
    found = runs_below(inside)
    assert found.runs == (inside / "own",) and found.links == 2


def test_dot_folders_are_left_aside(tmp_path: Path) -> None:
    write_run_file(tmp_path / ".cache" / "run")
    assert runs_below(tmp_path).runs == ()


def test_what_cannot_be_listed_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run_file(tmp_path / "good")
    (tmp_path / "locked").mkdir()
    own = os.scandir

    def scandir(path: Path) -> object:  # root may list anything, so that a mode of 0 proves nothing in a test
        if Path(path).name == "locked":
            raise PermissionError(13, "Permission denied")
        return own(path)

    monkeypatch.setattr(os, "scandir", scandir)
    found = runs_below(tmp_path)
    assert found.runs == (tmp_path / "good",) and found.unreadable == 1
    assert found.note == "1 folder that cannot be listed"


def test_a_root_that_is_missing_or_a_file_holds_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert runs_below(tmp_path / "none") == runs_below(tmp_path / "file") == RunTree(folders=1, unreadable=1)


def test_the_limits_hold_and_what_they_left_out_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(8):
        write_run_file(tmp_path / f"run{number}")
    write_run_file(tmp_path.joinpath(*"abcdefgh") / "too deep")
    assert len(runs_below(tmp_path).runs) == 8
    assert runs_below(tmp_path).left_out == 1
    monkeypatch.setattr(run_tree, "MOST_RUNS", 3)
    found = runs_below(tmp_path)
    assert len(found.runs) == 3 and found.left_out > 0 and "not looked through" in found.note
    monkeypatch.setattr(run_tree, "MOST_FOLDERS", 2)
    assert runs_below(tmp_path).folders == 2
    monkeypatch.setattr(run_tree, "MOST_ENTRIES", 4)
    assert runs_below(tmp_path).folders == 2 and runs_below(tmp_path).left_out > 0


NAMES = st.lists(st.sampled_from(["a", "b", "seed0", "tokens"]), min_size=1, max_size=4).map(tuple)


@examples(60)
@given(st.sets(NAMES, max_size=8))
def test_every_run_that_lies_in_no_other_run_is_found(places: set[tuple[str, ...]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for parts in places:
            write_run_file(root.joinpath(*parts))
        outer = {
            root.joinpath(*parts)
            for parts in places
            if not any(parts[:size] in places for size in range(1, len(parts)))
        }
        assert set(runs_below(root).runs) == outer and len(runs_below(root).runs) == len(outer)
