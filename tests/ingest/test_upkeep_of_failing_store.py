"""Verbs that change, check or send a run do not act on the part of it that a failing store still reads."""

from pathlib import Path

import pytest
from support import real_runs, run_folders
from support.failing_store import FailingStore

from ratioscope.app.cli import main
from ratioscope.ingest.maintenance.verify import verify

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return run_folders.write_run(tmp_path / "run", SMALL, segment_steps=1)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    return FailingStore(monkeypatch)


def files_of(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*"))


@pytest.mark.parametrize(
    ("kind", "path", "verb"),
    [
        ("unopened", "tokens/", "repair"),
        ("unopened", "tokens/", "repair --dry-run"),
        ("unopened", "commits/", "repair"),
        ("unlisted", "statistics", "repair"),
        ("unopened", "commits/", "compact"),
        ("unopened", "statistics/", "compact"),
        ("unlisted", "tokens", "prune --keep-steps 1 --yes"),
        ("unopened", "statistics/", "prune --keep-steps 1 --yes"),
    ],
)
def test_no_verb_changes_a_run_that_the_store_fails_to_read(
    root: Path, store: FailingStore, capsys: pytest.CaptureFixture[str], kind: str, path: str, verb: str
) -> None:
    before = files_of(root)
    getattr(store, kind).add(path)
    name, *options = verb.split()
    code, said = main([name, str(root), *options]), capsys.readouterr()
    assert files_of(root) == before
    assert (code, "try again once the store answers" in said.err) == (3, True), said


def test_verify_advises_to_look_again_and_not_to_move_the_file_away(root: Path, store: FailingStore) -> None:
    store.unopened.add("tokens/")
    troubles = verify(root).troubles
    assert len(troubles) == len(list(root.glob("tokens/*/*")))
    assert all("verify the run again once the store answers" in trouble.advice for trouble in troubles)


def test_push_sends_nothing_of_a_run_that_cannot_be_listed(
    root: Path, store: FailingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for path in ("tokens", "commits"):
        store.unlisted.add(path)
        assert main(["push", str(root), (tmp_path / "there").as_uri()]) == 3
        assert "it cannot be listed: Input/output error; push the run again" in capsys.readouterr().err
        store.heal()
