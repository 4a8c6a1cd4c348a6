"""Runs on a real S3 store, OpenStack Swift on loopback: pushed, opened, followed and reported; with faults on the way.

pyarrow's client of S3 speaks to it. A relay before it fails as networks do.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from polars.testing import assert_frame_equal
from pyarrow.fs import S3FileSystem
from support import real_runs, run_folders, swift
from support.read_run import read_run
from support.relay import Relay, relaying
from support.run_folders import FakeWriter
from support.swift import Swift

from ratioscope import layout, open_run
from ratioscope.app.cli import main as ratioscope
from ratioscope.app.cli.watching.looks import Watched
from ratioscope.app.referee import answer
from ratioscope.errors import SourceError
from ratioscope.ingest.analysis import evidence
from ratioscope.ingest.maintenance.push import push
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.remote import opening
from ratioscope.ingest.remote.address import address_of
from ratioscope.ingest.remote.mirror import Mirror
from ratioscope.ingest.remote.store import Store, Unreachable
from ratioscope.ingest.run import Run

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=4, rows=4))
BUCKET = "runs"


@pytest.fixture(scope="module")
def store() -> Iterator[Swift]:
    with swift.serving_bucket(BUCKET) as found:
        yield found


@pytest.fixture
def relay(store: Swift) -> Iterator[Relay]:
    with relaying(store.port) as found:
        yield found


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"XDG_CACHE_HOME": str(tmp_path / "cache"), **swift.environment(relay.port)}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(opening, "_MIRRORS", {})


@pytest.fixture
def url(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}/tonight"


def recorded(root: Path, steps: slice = slice(2)) -> FakeWriter:
    writer = FakeWriter(root, "r00000-h-1-a", segment_steps=4).open()
    more(writer, steps)
    return writer


def more(writer: FakeWriter, steps: slice) -> None:
    for rows in STEPS[steps]:
        writer.step(rows)


def copy_of(run: Run) -> Mirror:
    mirror = opening.mirror_at(run.path)
    assert mirror is not None
    return mirror


def test_a_pushed_run_opens_and_is_followed_like_the_folder(tmp_path: Path, url: str) -> None:
    writer = recorded(tmp_path / "run")
    push(tmp_path / "run", url)
    run = open_run(url)
    assert_frame_equal(run.metrics(), open_run(tmp_path / "run").metrics())
    assert run.place == url and run.name == open_run(tmp_path / "run").name
    assert not list((run.path / layout.TOKENS).rglob("*.parquet"))  # statistics and logs answer
    more(writer, slice(2, 4))
    writer.close()
    push(tmp_path / "run", url)
    copy_of(run).follow(every=0)
    assert run.refresh() and run.steps == open_run(tmp_path / "run").steps
    assert_frame_equal(run.metrics(), open_run(tmp_path / "run").metrics())
    step = run.steps[1]
    assert_frame_equal(run.sequences(step), open_run(tmp_path / "run").sequences(step))
    assert {path.parent.name for path in run.path.rglob("step=*/*.parquet")} == {f"step={step:09d}"}
    assert run.quarantined == () and run.notes == open_run(tmp_path / "run").notes


def test_verbs_answer_for_a_url(tmp_path: Path, url: str, capsys: pytest.CaptureFixture[str]) -> None:
    recorded(tmp_path / "run").close()
    assert ratioscope(["push", str(tmp_path / "run"), url]) == 0
    for verb in (["info"], ["metrics"], ["diagnose"], ["verify"], ["check"], ["watch"]):
        assert ratioscope([verb[0], url, *verb[1:]]) in (0, 1), verb
        printed = capsys.readouterr()
        assert "/cache/" not in printed.out + printed.err, verb
    assert ratioscope(["report", url, "-o", str(tmp_path / "r.html")]) == 0
    assert ratioscope(["export", url, "--level", "token", "-o", str(tmp_path / "t.csv")]) == 0
    assert ratioscope(["diff", url, str(tmp_path / "run")]) == 0
    capsys.readouterr()
    for verb in (["repair"], ["compact"], ["prune"], ["note"]):
        assert ratioscope([verb[0], url, *(["words"] if verb == ["note"] else [])]) == 2
        assert "is on a store, which is only read" in capsys.readouterr().err


def test_a_report_with_readings_receives_the_bytes_of_its_examples(
    tmp_path: Path, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = tuple(range(32))
    folder = read_run(tmp_path / "run", steps=len(steps), read=steps)
    push(folder, url)
    for module in (answer, evidence):
        monkeypatch.setattr(module, "MOST_STEPS", 2)
    assert ratioscope(["report", url, "-o", str(tmp_path / "r.html")]) == 0
    few = copy_of(open_run(url))
    brought = sum(path.stat().st_size for path in (few.root / layout.TOKENS).rglob("*.parquet"))
    every = sum(path.stat().st_size for path in (folder / layout.TOKENS).rglob("*.parquet"))
    others = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) - every
    assert 0 < brought < 0.6 * every and few.store.received < brought + 3 * others


def test_a_watch_sees_new_commits(tmp_path: Path, url: str) -> None:
    writer = recorded(tmp_path / "run")
    push(tmp_path / "run", url)
    watched = Watched(opening.local_run(url))
    assert watched.look().steps.height == 2
    more(writer, slice(2, 3))
    writer.close()
    push(tmp_path / "run", url)
    copy_of(open_run(watched.path))._tried = -1e9
    look = watched.look()
    assert look.steps.height == 3 and look.has_ended and look.lacks == ""


def test_only_appended_bytes_of_a_log_are_read_again(tmp_path: Path, url: str) -> None:
    writer = recorded(tmp_path / "run", slice(1))
    for number in range(400):
        writer.say(kind=layout.EVENT, event="weight_sync", step=1, note=f"number {number} " + "x" * 200)
    push(tmp_path / "run", url)
    mirror = copy_of(open_run(url))
    log = (tmp_path / "run" / layout.commit_file(writer.writer)).stat().st_size
    before = mirror.store.received
    assert log > 100_000 and before > log
    mirror.sync()
    assert mirror.store.received == before
    more(writer, slice(1, 2))
    push(tmp_path / "run", url)
    mirror.sync()
    assert mirror.store.received - before < 20_000
    assert (mirror.root / layout.commit_file(writer.writer)).read_bytes() == (
        tmp_path / "run" / layout.commit_file(writer.writer)
    ).read_bytes()


def test_large_files_are_uploaded_in_parts_and_read_whole(tmp_path: Path, url: str) -> None:
    recorded(tmp_path / "run")
    large = tmp_path / "large"
    large.write_bytes(bytes(range(256)) * 120_000)  # 30 MB
    store = Store(address_of(url) or pytest.fail())
    store.put(large, "tokens/step=000000001/x.parquet")
    with open(tmp_path / "back", "wb") as back:
        store.fetch("tokens/step=000000001/x.parquet", back, 1 << 26)
    assert (tmp_path / "back").read_bytes() == large.read_bytes()
    with open(tmp_path / "back", "wb") as back, pytest.raises(SourceError, match="more than 1000 bytes"):
        store.fetch("tokens/step=000000001/x.parquet", back, 1000)


@pytest.mark.parametrize(
    ("mode", "words"), [("403", "ACCESS_DENIED|Forbidden|403"), ("503", "cannot be reached"), ("stall", "no answer")]
)
def test_a_store_that_fails_is_named_and_the_known_state_is_shown(
    tmp_path: Path, url: str, relay: Relay, mode: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "run")
    push(tmp_path / "run", url)
    run = open_run(url)
    known = run.metrics()
    monkeypatch.setenv("RATIOSCOPE_STORE_SECONDS", "2")
    opening._MIRRORS.clear()
    run = open_run(url)
    relay.mode = mode
    with pytest.raises(Unreachable, match=words) as failed:
        open_run(f"{url}-other")
    assert swift.SECRET not in str(failed.value)
    copy_of(run).follow(every=0)
    assert not run.refresh() and "ago is shown, because" in run.notes[0]
    assert_frame_equal(run.metrics(), known)
    again = open_run(url)  # a new start, without the store
    assert_frame_equal(again.metrics(), known)
    with pytest.raises(Unreachable):  # never "set aside": a failure of the store is no damage of the run
        again.sequences(again.steps[0])
    relay.mode = "pass"
    assert again.sequences(again.steps[0]).height and again.quarantined == ()
    copy_of(again).follow(every=0)
    assert not again.notes


def test_a_server_that_dies_within_an_upload_leaves_an_older_state(
    tmp_path: Path, url: str, relay: Relay, store: Swift
) -> None:
    writer = recorded(tmp_path / "run", slice(2))
    push(tmp_path / "run", url)
    more(writer, slice(2, 4))
    relay.mode, relay.left = "cut", 40_000
    with pytest.raises(Unreachable):
        push(tmp_path / "run", url)
    store.kill("proxy")
    relay.mode = "pass"
    with pytest.raises(SourceError, match="cannot be reached"):
        push(tmp_path / "run", url)
    store.start("proxy")
    part = open_run(url)
    assert part.quarantined == () and set(part.steps) <= set(open_run(tmp_path / "run").steps)
    part.metrics()
    push(tmp_path / "run", url)
    shutil.rmtree(tmp_path / "cache")
    assert_frame_equal(open_run(url).metrics(), open_run(tmp_path / "run").metrics())
    assert verify(open_run(url).path, deep=True).sound


def test_a_segment_that_is_replaced_while_it_is_read_is_believed(tmp_path: Path, url: str) -> None:
    writer = recorded(tmp_path / "run", slice(2))
    push(tmp_path / "run", url)
    run = open_run(url)  # the logs of now
    more(writer, slice(2, 3))
    push(tmp_path / "run", url)  # and the segment of later
    frame = run.metrics()
    assert run.quarantined == () and frame.height == 2
    assert_frame_equal(frame, open_run(tmp_path / "run").metrics().head(2))


def test_another_run_at_the_address_is_noticed(tmp_path: Path, url: str, store: Swift) -> None:
    recorded(tmp_path / "a")
    push(tmp_path / "a", url)
    run = open_run(url)
    run.metrics()
    client = S3FileSystem(endpoint_override=f"127.0.0.1:{store.port}", scheme="http", region="us-east-1")
    client.delete_dir(url.removeprefix("s3://"))
    other = FakeWriter(tmp_path / "b", "r00000-h-1-b", segment_steps=4)
    run_folders.write_run_file(tmp_path / "b", id="other")
    more(other.open(), slice(2, 4))
    push(tmp_path / "b", url)
    copy_of(run).follow(every=0)
    run.refresh()
    assert run.is_replaced
    assert open_run(url).steps == open_run(tmp_path / "b").steps
