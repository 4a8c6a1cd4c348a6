"""A store that fails for a while: readers tell it and read again what comes back; no verb acts on the part that is left."""

import errno
import shutil
from pathlib import Path

import pytest
from support import real_runs, run_folders
from support.failing_store import FailingStore

from ratioscope import open_run
from ratioscope.app.cli import main
from ratioscope.ingest.commits.commit_log import CommitLog
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.run import Run

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=3, rows=4)


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return run_folders.write_run(tmp_path / "run", SMALL, segment_steps=1)


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> FailingStore:
    return FailingStore(monkeypatch)


def shown(run: Run) -> tuple[object, ...]:
    """All that a run shows, and how it was read."""
    rows = run.sequences().sort("step", "sequence_id").rows()
    return run.metrics().rows(), rows, run.name, run.is_replaced, run.quarantined, run.notes


@pytest.mark.parametrize(
    ("kind", "path", "named"),
    [
        ("unopened", "tokens/", "it cannot be read: Stale file handle"),
        ("unopened", "statistics/", "it cannot be read: Stale file handle"),
        ("unopened", "commits/", "it cannot be read: [Errno 116] Stale file handle"),
        ("unlisted", "tokens", "it cannot be listed: Input/output error"),
        ("unlisted", "statistics", "it cannot be listed: Input/output error"),
        ("unlisted", "commits", "it cannot be listed: Input/output error"),
        ("unopened", "run.json", "run.json cannot be read: [Errno 116] Stale file handle"),
    ],
)
def test_what_a_store_failed_to_read_is_named_and_read_once_the_store_is_well(
    root: Path, store: FailingStore, kind: str, path: str, named: str
) -> None:
    clean = shown(open_run(root))
    getattr(store, kind).add(path)
    run = open_run(root)
    shown(run)
    reasons = [item.reason for item in run.quarantined] + list(run.notes)
    assert any(named in reason for reason in reasons), reasons
    assert not any("is not there" in reason for reason in reasons)
    store.heal()
    assert run.refresh()
    assert shown(run) == clean
    assert not run.refresh()
    assert shown(open_run(root)) == clean


def test_a_folder_that_is_listed_as_it_was_earlier_lacks_no_file(root: Path, store: FailingStore) -> None:
    clean = shown(open_run(root))
    store.hidden |= {"tokens/", "statistics/"}
    assert shown(open_run(root)) == clean


def test_a_file_that_the_store_denied_once_is_read_once_it_is_there(root: Path, store: FailingStore) -> None:
    clean = shown(open_run(root))
    store.unopened, store.number = {"tokens/"}, errno.ENOENT
    run = open_run(root)
    shown(run)
    assert all("deleted, or not yet copied" in item.reason for item in run.quarantined)
    store.heal()
    assert run.refresh()
    assert shown(run) == clean


def test_a_log_that_a_listing_misses_does_not_make_it_another_run(root: Path, store: FailingStore) -> None:
    shutil.copy(next((root / "commits").iterdir()), root / "commits/other.jsonl")
    run = open_run(root)
    store.hidden.add("commits/other")
    run.refresh()
    assert not run.is_replaced
    (root / "commits/other.jsonl").unlink()
    run.refresh()
    assert run.is_replaced


def test_lines_that_were_read_before_the_store_failed_are_not_lost(root: Path, store: FailingStore) -> None:
    writer = next((root / "commits").iterdir()).stem
    expected = CommitLog(root, writer).advance()
    store.unread.add("commits/")
    log = CommitLog(root, writer)
    with pytest.raises(OSError, match="Input/output error"):
        log.advance()
    store.heal()
    assert log.advance() == expected
    assert log.advance() == []


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
