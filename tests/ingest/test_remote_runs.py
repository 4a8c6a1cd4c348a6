"""Runs on URLs: what is fetched, what is believed, and what a stranger's store cannot do. The store is a filesystem in memory.

tests/ingest/test_s3.py has the same against a server.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest
from polars.testing import assert_frame_equal
from support.run_folders import FakeWriter
from support.two_writers import STEPS, record, writers

from ratioscope import layout, open_run
from ratioscope.app.cli import main as ratioscope
from ratioscope.collectors.writing.offline import write_remark
from ratioscope.errors import SourceError
from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.remote import log_reading, mirror, opening
from ratioscope.ingest.remote.address import address_of
from ratioscope.ingest.remote.mirror import Mirror
from ratioscope.ingest.remote.store import Store, Unreachable
from ratioscope.ingest.run import Run

URL = "memory://bucket/runs/tonight"
PLACE = "/bucket/runs/tonight"
MEMORY = fsspec.filesystem("memory")


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(opening, "_MIRRORS", {})
    MEMORY.store.clear()
    yield
    MEMORY.store.clear()


@pytest.fixture
def both(tmp_path: Path) -> list[FakeWriter]:
    """Two writers of tmp_path/run, whose first two steps are on the store."""
    found = writers(tmp_path / "run")
    record(found, slice(2))
    push(tmp_path / "run", URL)
    return found


def copy_of(run: Run) -> Mirror:
    found = opening.mirror_at(run.path)
    assert found is not None
    return found


def fetched(run: Run) -> list[str]:
    return sorted(path.relative_to(run.path).as_posix() for path in (run.path / layout.TOKENS).rglob("*.parquet"))


@pytest.mark.usefixtures("both")
def test_statistics_and_logs_answer_for_all_steps_and_one_step_needs_its_own_files(tmp_path: Path) -> None:
    run, here = open_run(URL), open_run(tmp_path / "run")
    for by in (("step",), (), ("step", "position")):
        assert_frame_equal(run.metrics(by=by), here.metrics(by=by))
    assert run.digest == here.digest and run.steps == here.steps and run.unavailable == here.unavailable
    assert_frame_equal(run.distribution("token", "mismatch"), here.distribution("token", "mismatch"))
    assert fetched(run) == []
    step = run.steps[0]
    assert_frame_equal(run.tokens([step]).collect(), here.tokens([step]).collect())
    assert_frame_equal(run.records([step]).collect(), here.records([step]).collect())
    assert {path.split("/")[1] for path in fetched(run)} == {f"step={step:09d}"}
    before = copy_of(run).store.received
    run.sequences(step)
    assert copy_of(run).store.received == before


def test_a_growing_run_is_followed(tmp_path: Path, both: list[FakeWriter]) -> None:
    run = open_run(URL)
    revision = run.revision
    record(both, slice(2, 4))
    both[0].close()
    push(tmp_path / "run", URL)
    copy_of(run).is_followed = True
    assert not run.refresh()  # a thread asks the store, and no reader waits for it
    copy_of(run).follow(every=0)
    assert run.refresh() and run.revision > revision
    assert_frame_equal(run.metrics(), open_run(tmp_path / "run").metrics())
    assert run.writers["closed"].null_count() == 1


@pytest.mark.usefixtures("both")
def test_a_second_process_opens_the_copy_by_its_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    folder = open_run(URL).path
    monkeypatch.setattr(opening, "_MIRRORS", {})
    run = open_run(folder)
    assert run.place == URL and run.sequences(run.steps[0]).height


@pytest.mark.usefixtures("both")
def test_a_copy_whose_bytes_are_not_as_committed_is_fetched_again() -> None:
    run = open_run(URL)
    run.sequences(run.steps[0])
    path = run.path / fetched(run)[0]
    content = path.read_bytes()
    path.write_bytes(content[:-9] + b"\0" * 9)
    again = open_run(URL)
    assert again.sequences(again.steps[0]).height == 4 and again.quarantined == ()
    assert path.read_bytes() == content


@pytest.mark.usefixtures("both")
def test_a_file_that_the_store_lost_or_changed_is_set_aside_and_named() -> None:
    tokens = sorted(name for name in MEMORY.store if "/tokens/" in name)
    del MEMORY.store[tokens[0]]
    MEMORY.pipe(tokens[1], b"PAR1 and something else")
    run = open_run(URL)
    assert run.sequences(run.steps[0]).is_empty()
    reasons = {item.path: item.reason for item in run.quarantined}
    assert "it is not there" in reasons[tokens[0][len(PLACE) + 1 :]]
    assert "its commit states" in reasons[tokens[1][len(PLACE) + 1 :]]
    assert not verify(run.path).sound


@pytest.mark.usefixtures("both")
def test_a_log_that_was_replaced_is_read_from_its_start(tmp_path: Path) -> None:
    run = open_run(URL)
    others = writers(tmp_path / "other")
    record(others, slice(1, 4))
    for path in (tmp_path / "other").rglob("*"):
        if path.is_file():
            MEMORY.pipe(f"{PLACE}/{path.relative_to(tmp_path / 'other').as_posix()}", path.read_bytes())
    copy_of(run).follow(every=0)
    run.refresh()
    assert run.steps == open_run(tmp_path / "other").steps
    assert_frame_equal(run.metrics(), open_run(tmp_path / "other").metrics())


def test_a_run_with_a_lost_log_is_recovered_as_a_folder_is(tmp_path: Path, both: list[FakeWriter]) -> None:
    (tmp_path / "run" / layout.commit_file(both[1].writer)).unlink()
    del MEMORY.store[f"{PLACE}/{layout.commit_file(both[1].writer).as_posix()}"]
    log = f"{PLACE}/{layout.commit_file(both[0].writer).as_posix()}"
    cut = MEMORY.cat(log)[:-20]
    MEMORY.pipe(log, cut)
    (tmp_path / "run" / layout.commit_file(both[0].writer)).write_bytes(cut)
    run, here = open_run(URL), open_run(tmp_path / "run")
    assert run.steps == here.steps and run.size.rows == here.size.rows
    assert_frame_equal(run.metrics(), here.metrics())


def test_a_store_without_a_run_says_what_it_holds(both: list[FakeWriter], tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"holds one: open memory://bucket/runs/tonight"):
        open_run("memory://bucket/runs")
    with pytest.raises(SourceError, match="is no run: there is nothing"):
        open_run("memory://bucket/elsewhere")
    assert both and list((tmp_path / "cache").rglob(layout.MIRROR_MARK)) == []


@pytest.mark.usefixtures("both")
def test_a_store_that_fails_shows_the_known_state_with_its_age(monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(URL)
    known = run.metrics()

    def away(*_: object, **__: object) -> None:
        raise OSError("no route to host")

    with monkeypatch.context() as outage:
        outage.setattr(type(MEMORY), "ls", away)
        outage.setattr(type(MEMORY), "_open", away)
        again = open_run(URL)
        assert_frame_equal(again.metrics(), known)
        assert "seconds ago is shown, because" in again.behind and "no route to host" in again.notes[0]
        with pytest.raises(Unreachable, match="no route to host"):
            again.sequences(again.steps[0])
        with pytest.raises(Unreachable, match="no route to host"):
            open_run("memory://bucket/never/seen")
    assert again.sequences(again.steps[0]).height == 4 and again.quarantined == ()
    copy_of(again).follow(every=0)
    assert again.behind == ""


@pytest.mark.usefixtures("both")
def test_a_store_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    from threading import Event

    monkeypatch.setenv("RATIOSCOPE_STORE_SECONDS", "0.05")
    release = Event()
    monkeypatch.setattr(type(MEMORY), "ls", lambda *_, **__: release.wait())
    with pytest.raises(Unreachable, match="no answer within 0.05 seconds"):
        open_run(URL)
    release.set()


NAMES = (
    "commits/../../../../escaped.jsonl",
    "commits/.hidden.jsonl",
    "commits/_mark.jsonl",
    "commits/line\nbreak.jsonl",
    "commits/" + "long" * 100 + ".jsonl",
    "commits/deep/below.jsonl",
    "tokens/../../escaped.parquet",
    "tokens/step=1/../../../escaped.parquet",
)


@pytest.mark.usefixtures("both")
@pytest.mark.parametrize("name", NAMES)
def test_a_name_on_a_store_leads_nowhere_but_into_the_copy(tmp_path: Path, name: str) -> None:
    MEMORY.store[f"{PLACE}/{name}"] = MEMORY.store[next(path for path in MEMORY.store if path.endswith(".jsonl"))]
    run = open_run(URL)
    run.metrics()
    verify(run.path)
    assert not [path for path in tmp_path.rglob("*escaped*") if path.is_file()]
    assert sorted(os.listdir(run.path / layout.COMMITS)) == sorted(os.listdir(tmp_path / "run" / layout.COMMITS))
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"ratioscope"}


def test_a_commit_that_names_a_file_elsewhere_fetches_nothing(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run", segment_steps=4).open()
    writer.step(STEPS[0])
    for path in (
        "tokens/step=000000001/../../../../stolen.parquet",
        "/etc/passwd",
        "tokens/step=1/.x.parquet",
        "run.json",
    ):
        facts = {"file": path, "bytes": 9, "sha256": "0" * 64, "rows": 1, "tokens": 1, "step": 1, "schema": 2}
        writer.say(kind=layout.COMMIT, policies=["rollout", "old"], gaps=["mismatch"], **facts)
    push(tmp_path / "run", URL)
    run = open_run(URL)
    for step in run.steps:
        run.sequences(step)
    assert run.metrics().height and {item.path for item in run.quarantined} >= {"/etc/passwd", "run.json"}
    assert not list(tmp_path.rglob("stolen*"))


@pytest.mark.usefixtures("both")
def test_what_is_too_large_is_named_and_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reading, "MOST_LOG", 1500)
    MEMORY.pipe(f"{PLACE}/commits/r00009-h-1-a.jsonl", b"x" * 2000)
    monkeypatch.setattr(log_reading, "MOST_SMALL", 10)
    run = open_run(URL)
    assert "commits/r00009-h-1-a.jsonl was not read: it has 2000 bytes; at most 1500" in run.behind
    assert "run.json was not read" in run.behind
    monkeypatch.setattr(log_reading, "MOST_LOGS", 2)
    with pytest.raises(SourceError, match="3 commit logs; at most 2"):
        open_run(URL)


@pytest.mark.usefixtures("both")
def test_a_file_that_goes_on_beyond_its_commit_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    token_file = next(name for name in sorted(MEMORY.store) if "/tokens/" in name)
    MEMORY.pipe(token_file, MEMORY.cat(token_file) + b"x" * 200_000)
    monkeypatch.setattr(mirror, "_MORE", 100_000)
    run = open_run(URL)
    run.sequences(run.steps[0])
    assert "the most that is read of it" in run.quarantined[0].reason
    assert not [path for path in run.path.rglob("*.part")]


@pytest.mark.usefixtures("both")
def test_copies_that_were_not_used_for_longest_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(URL)
    for step in run.steps:
        run.sequences(step)
    held = {path: path.stat() for path in (run.path / layout.TOKENS).rglob("*.parquet")}
    old = sorted(held)[:2]
    for path in old:
        os.utime(path, (time.time() - 5000, held[path].st_mtime))
    total = sum(path.stat().st_size for path in run.path.rglob("*.parquet"))
    monkeypatch.setenv(mirror.BUDGET_VARIABLE, str(total - 1))
    mirror.trim(opening.mirrors_folder(), mirror.budget())
    assert not old[0].exists() and all(path.exists() for path in held if path not in old)
    assert run.sequences(run.steps[0]).height == 4
    measured: list[int] = []
    monkeypatch.setattr(mirror, "trim", lambda _, most: measured.append(most))
    for name in fetched(run):
        copy_of(run).bring(name, None, again=True)
    assert measured == []  # a look at all copies for each file would take longer than the file
    monkeypatch.setattr(mirror, "RESERVE", 1 << 62)
    with pytest.raises(mirror.NoRoom, match="wanted .* more than that"):
        copy_of(run).bring(fetched(run)[0], None, again=True)


@pytest.mark.usefixtures("both")
def test_nothing_is_written_into_a_copy(capsys: pytest.CaptureFixture[str]) -> None:
    run = open_run(URL)
    with pytest.raises(SourceError, match="is a copy of a run on a store"):
        write_remark(run.path, layout.NOTE, 1, "words")
    assert ratioscope(["baseline", "pin", URL]) == 2
    assert "is on a store; wanted a run in a folder of this machine" in capsys.readouterr().err
    further = (["rescore", "--model", "x"], ["identity", "--tokenizer", "x"], ["push", URL])
    for verb in (["repair"], ["compact"], ["prune"], ["note", "words"], *further):
        assert ratioscope([verb[0], URL, *verb[1:]]) == 2
        assert "is on a store, which is only read" in capsys.readouterr().err


@pytest.mark.usefixtures("both")
def test_no_file_and_no_message_holds_a_secret(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    secret = "memory://person:hunter22@bucket/runs/tonight?signature=abcdef123"
    address = address_of(secret)
    assert address is not None
    found = opening.mirror_of(address)
    found.store._opened = MEMORY, PLACE  # what a package does with a user is its own
    assert ratioscope(["info", secret]) == 0
    printed = capsys.readouterr()
    everything = [path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    for word in ("hunter22", "abcdef123", "person"):
        assert word not in printed.out + printed.err and not any(word.encode() in data for data in everything)
    assert "memory://***@bucket/runs/tonight" in printed.out
    opening._MIRRORS.clear()
    with pytest.raises(SourceError, match="open the run by its URL"):
        open_run(found.root)


def test_a_strangers_folder_cannot_pass_for_a_copy(tmp_path: Path) -> None:
    record(writers(tmp_path / "key" / "run"), slice(1))
    (tmp_path / "key" / "state.json").write_text(json.dumps({"url": URL, "shown": URL}))
    (tmp_path / "key" / "run" / layout.MIRROR_MARK).touch()
    run = open_run(tmp_path / "key" / "run")
    assert not run.is_remote and run.place == str(tmp_path / "key" / "run")


def test_a_file_url_is_the_folder_itself(tmp_path: Path) -> None:
    record(writers(tmp_path / "run"), slice(1))
    run = open_run(f"file://{tmp_path}/run")
    assert run.path == tmp_path / "run" and not run.is_remote
    assert ratioscope(["note", f"file://{tmp_path}/run", "words"]) == 0


@pytest.mark.usefixtures("both")
def test_a_damaged_state_of_a_copy_is_made_anew() -> None:
    run = open_run(URL)
    for content in (b"", b"{", b"[]", b'{"marks": 7}', b'{"read": "x", "failed": [], "marks": {"a": 1}}'):
        (run.path.parent / "state.json").write_bytes(content)
        assert open_run(URL).metrics().height == 2, content


def test_requests_do_not_grow_with_the_steps_on_record(tmp_path: Path) -> None:
    both = writers(tmp_path / "run")
    calls: list[int] = []
    for steps in (slice(1), slice(1, 4)):
        record(both, steps)
        push(tmp_path / "run", URL)
        store = Store(address_of(URL) or pytest.fail())
        Mirror(tmp_path / f"cache{len(calls)}/key/run", store).sync()
        calls.append(store.calls)
    assert calls[1] <= calls[0] + 1 <= 8  # one for the log of the second push


@pytest.mark.usefixtures("both")
def test_columns_are_read_from_footers_alone(tmp_path: Path) -> None:
    run, here = open_run(URL), open_run(tmp_path / "run")
    assert run.columns == here.columns and fetched(run) == []
    for name in [
        name for name in MEMORY.store if "/tokens/" in name
    ]:  # a footer that is none: the file itself is looked at
        MEMORY.pipe(name, MEMORY.cat(name)[:-8] + b"\xff\xff\xff\x7fPAR1")
    again = open_run(URL)
    assert again.columns == frozenset() and again.quarantined
