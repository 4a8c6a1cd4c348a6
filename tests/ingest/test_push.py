"""Push: every state that it leaves on a store is an older state of the run, and a second push finishes the first."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from support.two_writers import record, writers

from ratioscope import layout, open_run
from ratioscope.app.cli import main as ratioscope
from ratioscope.app.cli.commands.push import _pushed
from ratioscope.errors import SourceError
from ratioscope.ingest.maintenance import push as pushing
from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.remote.store import Store, Unreachable


class Killed(BaseException):
    """The end of the process: nothing after it happens."""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pushing, "_UPLOADS", 1)  # the order of uploads is what is cut


@pytest.fixture
def killed_after(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """[number of uploads that are left before the process ends]"""
    left, put = [1_000_000], Store.put

    def counted(store: Store, local: Path, path: str) -> None:
        if left[0] == 0:
            raise Killed
        left[0] -= 1
        put(store, local, path)

    monkeypatch.setattr(Store, "put", counted)
    yield left


def assert_part_of(there: Path, whole: Path, steps: int) -> None:
    """What a reader sees on the store is what it sees here, for all steps that are settled there."""
    part, run = open_run(there), open_run(whole)
    assert part.quarantined == () and set(part.steps) <= set(run.steps)
    assert len(part.steps) >= steps
    both = part.metrics(names=["kl_k3"]).join(run.metrics(names=["kl_k3"]), on="step", suffix="_whole")
    complete = {step for step in part.steps if part.rows_on_disk.get(step) == run.rows_on_disk.get(step)}
    for row in both.filter(both["step"].is_in(sorted(complete))).iter_rows(named=True):
        assert row["mismatch/kl_k3"] == pytest.approx(row["mismatch/kl_k3_whole"], rel=1e-12)


def test_a_pushed_run_is_the_run(tmp_path: Path) -> None:
    root = tmp_path / "run"
    record(writers(root), slice(4))
    done = push(root, f"file://{tmp_path}/store/a")
    there = tmp_path / "store/a"
    assert done.files == len([path for path in there.rglob("*") if path.is_file()])
    assert_frame_equal(open_run(there).metrics(), open_run(root).metrics())
    again = push(root, f"file://{tmp_path}/store/a")
    assert (again.files, again.bytes) == (0, 0) and again.there == done.files


def test_every_prefix_of_the_uploads_is_a_state_of_the_run(tmp_path: Path, killed_after: list[int]) -> None:
    root = tmp_path / "run"
    both = writers(root)
    record(both, slice(2))
    first = push(root, f"file://{tmp_path}/whole").files
    for number in range(first):
        url, there = f"file://{tmp_path}/{number}", tmp_path / str(number)
        killed_after[0] = number
        with pytest.raises(Killed):
            push(root, url)
        if number:
            assert_part_of(there, root, 0)
        killed_after[0] = 1_000_000
        push(root, url)
        assert_part_of(there, root, 2)
    record(both, slice(2, 4))
    for number in range(30):
        url, there = f"file://{tmp_path}/{number % first}", tmp_path / str(number % first)
        killed_after[0] = number
        try:
            push(root, url)
        except Killed:
            assert_part_of(there, root, 2)
            killed_after[0] = 1_000_000
            push(root, url)
            assert_part_of(there, root, 4)
            continue
        assert number > 4  # segments, announcement, run.json and both logs are uploads
        break
    assert verify(tmp_path / "4", deep=True).sound


def test_another_run_in_the_place_is_refused(tmp_path: Path) -> None:
    record(writers(tmp_path / "a"), slice(2))
    record(writers(tmp_path / "b"), slice(1, 4))
    push(tmp_path / "a", f"file://{tmp_path}/there")
    with pytest.raises(SourceError, match="holds another run|has another"):
        push(tmp_path / "b", f"file://{tmp_path}/there")


def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    both = writers(tmp_path / "run")
    record(both, slice(2))
    push(tmp_path / "run", f"file://{tmp_path}/old")
    record(both, slice(2, 4))
    push(tmp_path / "run", f"file://{tmp_path}/new")
    with pytest.raises(SourceError, match="older copy"):
        push(tmp_path / "old", f"file://{tmp_path}/new")


def test_a_line_that_is_being_written_is_not_uploaded(tmp_path: Path) -> None:
    root = tmp_path / "run"
    record(writers(root), slice(2))
    log = root / layout.commit_file("r00000-h-1-a")
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"kind": "comm')
    push(root, f"file://{tmp_path}/there")
    assert (tmp_path / "there" / layout.commit_file("r00000-h-1-a")).read_bytes() == whole


def test_secrets_of_a_url_are_in_no_message(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "run"
    record(writers(root), slice(1))
    assert ratioscope(["push", str(root), "nosuch://person:hunter22@host/run?signature=abcdef123"]) == 3
    printed = capsys.readouterr()
    assert "hunter22" not in printed.err + printed.out and "abcdef123" not in printed.err + printed.out
    assert "nosuch://***@host/run?***" in printed.err


def test_a_link_in_the_run_leads_to_no_file_outside_of_it(tmp_path: Path) -> None:
    root = tmp_path / "run"
    record(writers(root), slice(2))
    (tmp_path / "secret").write_text("hunter22")
    rows = next((root / layout.TOKENS).rglob("*.parquet"))
    rows.unlink()
    rows.symlink_to(tmp_path / "secret")
    with contextlib.suppress(SourceError):
        push(root, f"file://{tmp_path}/there")
    assert all(b"hunter22" not in path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file())


def test_a_store_that_fails_is_no_empty_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "run"
    record(writers(root), slice(1))

    def refused(store: Store) -> dict[str, object]:
        raise Unreachable("it did not answer")

    monkeypatch.setattr(Store, "files", refused)
    with pytest.raises(SourceError, match="did not answer"):
        push(root, f"file://{tmp_path}/there")
    assert not (tmp_path / "there").exists()


def test_following_outlives_a_store_that_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, url = tmp_path / "run", f"file://{tmp_path}/there"
    both = writers(root)
    record(both, slice(2))
    put, looks = Store.put, [0]

    def refused(store: Store, local: Path, path: str) -> None:
        raise Unreachable("it did not answer")

    def later(_: float) -> None:
        looks[0] += 1
        if looks[0] == 1:
            record(both, slice(2, 4))
            for writer in both:
                writer.close()
            monkeypatch.setattr(Store, "put", refused)
        else:
            monkeypatch.setattr(Store, "put", put)

    _pushed(root, url, True, 1.0, later)
    assert looks == [2] and "did not answer; the next upload is tried in 1 seconds" in capsys.readouterr().err
    assert_frame_equal(open_run(tmp_path / "there").metrics(), open_run(root).metrics())
