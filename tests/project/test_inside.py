"""No reader, verb or writer leaves the run folder, whatever a stranger put into it: links, pipes, sockets, paths that go out."""

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import Collector, layout, open_run
from ratioscope.app.cli import FINDINGS, OK, UNMEASURED, UNREADABLE, main
from ratioscope.app.upkeep.maintenance import compact
from ratioscope.collectors.writing import durable_file
from ratioscope.inside import Astray, content, entries, folder, is_file, open_regular, status

SMALL = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=2, rows=2)
VERBS = (
    ["info"], ["metrics"], ["check"], ["note", "x"], ["verify", "--deep"], ["repair", "--writers-ended"],
    ["compact", "--writers-ended"], ["prune", "--keep-steps", "0", "--yes", "--writers-ended"],
)  # fmt: skip
GONE = 2**22 + 1  # no process has this number
PATIENCE = 60.0
Seen = dict[str, tuple[int, bytes]]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return run_folders.write_run(tmp_path / "run", SMALL, writers=2)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A folder of somebody else's, with what verbs move, delete or replace in a run: a live writer's file among it."""
    place = tmp_path / "elsewhere"
    run_folders.write_run(place, SMALL)
    for path in ("tokens/step=000000020", "statistics", "commits", "quarantine", "."):
        (place / path).mkdir(exist_ok=True)
        (place / path / ".r00000.0000.parquet.1-2").write_bytes(b"being written")
        (place / path / "victim.py").write_bytes(b"theirs")
    return place


def seen(place: Path) -> Seen:
    return {str(path): (path.stat().st_ino, path.read_bytes()) for path in place.rglob("*") if path.is_file()}


def linked(root: Path, elsewhere: Path, part: str) -> None:
    """The part of the run is a link; what was in it lies elsewhere, as somebody's data would."""
    path = root / part
    if path.exists():
        path.rename(root.parent / "was")
    path.symlink_to(elsewhere / part)


@pytest.mark.parametrize("part", ["tokens", "statistics", "commits", "quarantine", "tokens/step=000000020"])
def test_no_verb_reads_moves_writes_or_deletes_through_a_folder_that_is_a_link(
    root: Path, elsewhere: Path, part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    linked(root, elsewhere, part)
    (root / "statistics" / "payload.pth").write_bytes(b"import os; os.system('id')") if part == "quarantine" else None
    before = seen(elsewhere)
    for verb in VERBS:
        assert main([verb[0], str(root), *verb[1:]]) in (OK, FINDINGS, UNREADABLE, UNMEASURED), verb
    assert seen(elsewhere) == before
    assert "Traceback" not in capsys.readouterr().err
    if part in ("quarantine", "commits"):
        assert main(["repair", str(root), "--writers-ended"]) == UNREADABLE or part == "commits"


def test_repair_says_which_link_is_in_the_way_before_it_moves_anything(
    root: Path, elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (root / "quarantine").symlink_to(elsewhere)
    payload = root / "statistics" / "payload.pth"
    payload.write_bytes(b"import os")
    assert main(["repair", str(root), "--writers-ended"]) == UNREADABLE
    told = capsys.readouterr().err
    assert "quarantine is a symbolic link" in told and "wanted a folder" in told and told.count("\n") == 1
    assert payload.exists() and not list(elsewhere.glob("*payload*"))


@pytest.mark.parametrize(
    "path", ["../elsewhere/victim.py", "/etc/passwd", "tokens/../../elsewhere/victim.py", "", "a\0b"]
)
def test_a_path_that_leads_out_is_refused_by_every_door(root: Path, path: str) -> None:
    doors: list[Callable[[], object]] = [
        lambda: open_regular(root, path), lambda: content(root, path, 10), lambda: status(root, path),
        lambda: durable_file.write_whole(root, path, b"x"), lambda: durable_file.create_whole(root, path, b"x"),
        lambda: durable_file.append(root, path, b"x", 0), lambda: durable_file.delete(root, [path]),
        lambda: durable_file.move(root, "run.json", path), lambda: durable_file.move(root, path, "x"),
        lambda: durable_file.make_folder(root, path), lambda: durable_file.is_taken(root, path),
    ]  # fmt: skip
    for door in doors:
        with pytest.raises(Astray, match="leads out of the run; wanted a path below it"):
            door()
    assert not is_file(root, path) and is_file(root, "run.json")


def test_lines_that_name_files_outside_move_prune_and_delete_nothing(root: Path, elsewhere: Path) -> None:
    stranger = FakeWriter(root, "offline-host-1-abcdef").open()
    for path in ("../elsewhere/victim.py", str(elsewhere / "victim.py"), "tokens/../../elsewhere/victim.py", "a\0b"):
        stranger.say(kind=layout.PRUNED, files=[path], steps=[], bytes=1)
        stranger.say(kind=layout.MOVED, file=path, to="../elsewhere/x", reason="x")
        stranger.say(kind=layout.COMMIT, file=path, step=20, rows=1, tokens=1, bytes=1, sha256="0" * 64)
        stranger.say(kind=layout.NOTED, log=path, altered=1, tail=1)
        replaced = [{"file": path, "sha256": "0" * 64, "writer": "w"}]
        stranger.say(
            kind=layout.COMMIT, file="statistics/w.0.parquet", steps=[20], bytes=1, sha256="0", replaces=replaced
        )
    before = seen(elsewhere)
    for verb in VERBS:
        assert main([verb[0], str(root), *verb[1:]]) in (OK, FINDINGS), verb
    assert seen(elsewhere) == before


def test_a_file_that_is_written_replaces_a_link_or_a_name_and_never_what_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "theirs").write_bytes(b"theirs")
    run = tmp_path / "run"
    run.mkdir()
    hidden = f".run.json.{os.getpid()}-{threading.get_ident()}"
    for make in (os.symlink, os.link):
        make(tmp_path / "theirs", run / hidden)
        make(tmp_path / "theirs", run / "run.json")
        durable_file.write_whole(run, "run.json", b"ours")
        assert (run / "run.json").read_bytes() == b"ours" and (tmp_path / "theirs").read_bytes() == b"theirs"
        (run / "run.json").unlink()
    (run / "log").symlink_to(tmp_path / "theirs")
    with pytest.raises(OSError, match="symbolic links"):
        durable_file.append(run, "log", b"ours", 0)
    assert (tmp_path / "theirs").read_bytes() == b"theirs"


def test_the_run_folder_itself_may_be_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "named").symlink_to(root)
    assert compact(tmp_path / "named", writers_ended=True).written
    assert len(open_run(tmp_path / "named").steps) == 2
    assert {entry.name for entry in entries(tmp_path / "named", "") if entry.is_folder} == {
        "tokens", "statistics", "commits",
    }  # fmt: skip


def made_a_pipe(path: Path) -> None:
    os.mkfifo(path)


def made_a_socket(path: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    here = os.getcwd()
    os.chdir(path.parent)  # a socket's name is short
    try:
        listening.bind(path.name)
    finally:
        os.chdir(here)
        listening.close()


def made_a_folder(path: Path) -> None:
    path.mkdir()


def made_a_dangling_link(path: Path) -> None:
    path.symlink_to("/nowhere/at/all")


def made_a_link_to_a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def made_a_link_to_itself(path: Path) -> None:
    path.symlink_to(path.name)


MADE = (made_a_pipe, made_a_socket, made_a_folder, made_a_dangling_link, made_a_link_to_a_device, made_a_link_to_itself)


@pytest.mark.parametrize("make", MADE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", ["control.json", "run.json", "commits/r00007-host-9-abcdef.jsonl"])
def test_whatever_bears_the_name_of_a_file_that_a_writer_reads_recording_goes_on(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    run = run_folders.write_run(tmp_path / "run", SMALL)
    (run / name).unlink(missing_ok=True)
    make(run / name)
    values = np.full((2, 3), -0.5, np.float32)
    with Collector(run) as collector:
        collector.log(step=30, rollout_logprobs=values, old_logprobs=values)
        assert collector.flush(PATIENCE)
    assert collector.counts.sequences.dropped == 0
    assert 30 in open_run(run).steps


@pytest.mark.parametrize(
    "claim",
    [{"attempt": 2**31 - 1}, {"attempt": "7"}, {"attempt": None}, {"pid": None}, {"pid": "x"}, {"attempt": 1e400}],
    ids=str,
)
def test_what_a_stranger_s_log_claims_does_not_end_a_start(tmp_path: Path, claim: dict[str, object]) -> None:
    run = run_folders.write_run(tmp_path / "run", SMALL)
    stranger = FakeWriter(run, "r00000-host-2-abcdef")
    stranger.say(**{"kind": layout.OPEN, "writer": "w", "rank": 0, "host": "h", "pid": GONE, "attempt": 0, **claim})
    values = np.full((2, 3), -0.5, np.float32)
    with Collector(run) as collector:
        collector.log(step=30, rollout_logprobs=values, old_logprobs=values)
        assert collector.flush(PATIENCE)
    assert 30 in open_run(run).steps


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"attempts": 7}', '{"attempts": [1]}', "[]", "\x00"], ids=lambda t: t[:16]
)
def test_a_run_file_that_cannot_be_does_not_end_a_start(tmp_path: Path, text: str) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text(text)
    (run / "control.json").write_text(text)
    values = np.full((2, 3), -0.5, np.float32)
    with Collector(run) as collector:
        collector.log(step=30, rollout_logprobs=values, old_logprobs=values)
        assert collector.flush(PATIENCE)
    assert (run / "run.json").read_text() == text
    (run / "run.json").unlink()
    assert open_run(run).steps == [30]


def test_a_folder_is_held_by_its_descriptor_while_something_in_it_is_changed(root: Path, elsewhere: Path) -> None:
    with folder(root, "tokens") as held:
        (root / "tokens").rename(root / "moved")
        (root / "tokens").symlink_to(elsewhere)
        assert set(os.listdir(held)) == set(os.listdir(root / "moved"))
        with pytest.raises(Astray, match="tokens is a symbolic link"), folder(root, "tokens"):
            pass
