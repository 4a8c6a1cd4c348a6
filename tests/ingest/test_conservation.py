"""One account of what was offered, told alike by every face: what a dead run lost is not called fine, nor a queue lost."""

import json
import os
from pathlib import Path
from typing import Any, NoReturn

import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter
from support.waiting import ended_pid

from ratioscope import layout, open_run
from ratioscope.app.cli import main
from ratioscope.app.pages.quality import quality, quality_facts
from ratioscope.ingest.analysis.recorded_events import recorded_events
from ratioscope.ingest.commits.commit_log import CommitLog
from ratioscope.ingest.commits.conservation import UNSEEN
from ratioscope.ingest.commits.entries import TokenFile
from ratioscope.ingest.commits.history_lines import advance
from ratioscope.ingest.commits.liveness import at_work
from ratioscope.ingest.commits.writer_history import FileTotals, WriterHistory, file_totals
from ratioscope.process import here, process_start

STEPS = run_folders.by_step(run_folders.few(real_runs.records("trl_vllm_stale4"), steps=4, rows=3))
HERE = here()


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def gone() -> int:
    return ended_pid()


def recorded(root: Path, pid: int) -> Path:
    """A run whose writer, of this process, had taken 7 sequences more than it wrote, and had refused 5 that nobody looked at."""
    writer = FakeWriter(root)
    writer.root.mkdir()
    run_folders.write_run_file(root)
    (root / "commits").mkdir()
    started = process_start(pid)
    writer.say(
        kind="open", writer=writer.writer, rank=0, attempt=0, pid=pid, started=started, host=HERE.host,
        namespace=HERE.namespace,
    )  # fmt: skip
    writer.drop(STEPS[0]["step"][0].as_py(), 5, 0, "queue full")
    for rows in STEPS[:-1]:
        writer.step(rows)
    writer.offered += 7
    writer.step(STEPS[-1])
    return root


def told(root: Path) -> dict[str, str]:
    run = open_run(root)
    return dict(quality_facts(quality(run, run.metrics())))


def test_what_a_writer_at_work_holds_is_pending_and_what_a_dead_one_held_is_lost(tmp_path: Path, gone: int) -> None:
    alive = open_run(recorded(tmp_path / "alive", os.getpid())).conservation
    dead = open_run(recorded(tmp_path / "dead", gone)).conservation
    assert (alive.pending, alive.lost, alive.gone) == (7, 0, 0)
    assert (dead.pending, dead.lost, dead.gone) == (0, 7, 1) and not dead.is_whole
    for found in (alive, dead):
        assert found.offered == found.written + found.left_out + found.dropped + found.pending + found.lost == 24


def test_every_face_tells_the_same_of_a_dead_run(tmp_path: Path, gone: int, capsys: pytest.CaptureFixture[str]) -> None:
    root = recorded(tmp_path / "run", gone)
    words = told(root)
    assert words["lost"] == f"at least 7 sequences: 1 writer ended without closing; tokens {UNSEEN}"
    assert words["dropped"] == f"5 sequences (5 queue full); tokens {UNSEEN}"
    assert main(["info", str(root), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["lost"], facts["pending"], facts["dropped"], facts["dropped_tokens"]) == (7, 0, 5, None)
    assert main(["info", str(root)]) == 0
    assert "at least 7 sequences" in " ".join(capsys.readouterr().out.split())
    lost = recorded_events(open_run(root)).filter(event="lost")
    assert lost["step"].to_list() == [22] and "at least 7 sequences" in lost["note"][0]


def test_a_writer_that_another_took_over_from_has_ended(tmp_path: Path, gone: int) -> None:
    root = recorded(tmp_path / "run", os.getpid())
    second = FakeWriter(root, "r00000-host-9-bbbbbb")
    facts: dict[str, Any] = {
        "rank": 0,
        "attempt": 0,
        "host": HERE.host,
        "namespace": HERE.namespace,
        "pid": os.getpid(),
    }
    second.say(kind="open", writer=second.writer, takes_over=["r00000-host-1-abcdef"], **facts)
    found = open_run(root).conservation
    assert (found.pending, found.lost, found.gone) == (0, 7, 0)


def test_what_a_killed_writer_held_is_what_the_next_one_of_its_collector_tells_of(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", os.getpid())
    second = FakeWriter(root, "r00000-host-1-bbbbbb")
    own = {"rank": 0, "attempt": 0, "host": HERE.host, "namespace": HERE.namespace, "pid": os.getpid()}
    second.say(kind="open", writer=second.writer, continues=["r00000-host-1-abcdef"], **own)
    second.drop(STEPS[0]["step"][0].as_py(), 7, 0, "the writer's process ended")
    second.step(STEPS[-1])
    second.close()
    run = open_run(root)
    found, writers = run.conservation, run.writers
    assert (found.offered, found.pending, found.lost, found.gone, found.writers) == (24 + 3, 0, 0, 0, 1)
    assert sorted((part.reason, part.sequences) for part in found.reasons) == [
        ("queue full", 5),
        ("the writer's process ended", 7),
    ]
    assert writers["ended"].to_list() == ["replaced", "closed"] and writers["pending"].to_list() == [0, 0]
    assert not at_work(run._catalog.writers, HERE, 0.0) and not run.shadowed


def test_rows_that_are_not_shown_are_counted_with_their_reason(tmp_path: Path) -> None:
    root = tmp_path / "run"
    for attempt, steps in enumerate((STEPS, STEPS[2:])):
        writer = FakeWriter(root, f"r00000-host-{attempt}-aaaaaa", attempt=attempt).open()
        for rows in steps:
            writer.step(rows)
        writer.close()
    run = open_run(root)
    assert (run.conservation.hidden, run.conservation.is_whole) == (6, True)
    assert told(root)["not shown"] == "2 steps from 20 to 22 of attempt 0, 6 rows: written again by attempt 1"
    (root / "tokens" / "step=000000016" / "r00000-host-0-aaaaaa.0000.parquet").write_bytes(b"")
    run = open_run(root)
    run.sequences(16)
    assert run.conservation.set_aside == 3


def test_totals_of_files_are_kept_line_by_line(tmp_path: Path) -> None:
    """Also of a step without statistics yet, and of a file that was committed again with other numbers."""
    writer = FakeWriter(tmp_path / "run", segment_steps=2).open()
    history, path = WriterHistory(CommitLog(writer.root, writer.writer)), ""
    for place, rows in enumerate(STEPS):
        path = writer.step(rows, with_statistics=place % 2 == 0)
        advance(history)
        assert history.file_totals == file_totals(history.token_files.values())
    (line,) = (
        line
        for line in map(layout.decode_line, writer.log.read_bytes().splitlines())
        if line and line.get("file") == path
    )
    again = {key: value for key, value in line.items() if key not in ("line", "chain", "crc32", "time")}
    writer.say(**again | {"rows": 1, "left_out": 2})
    advance(history)
    assert history.file_totals == file_totals(history.token_files.values()) == FileTotals(10, 2, (12, 22, 0), 22)


def test_a_look_without_news_adds_up_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = open_run(recorded(tmp_path / "run", os.getpid()))
    before = run.conservation
    for history in run._catalog.writers:
        monkeypatch.setattr(history, "token_files", Unread())
    assert not run.refresh() and run.conservation == before


class Unread(dict[str, TokenFile]):
    """Files that nobody may go through."""

    def values(self) -> NoReturn:
        raise AssertionError("the files are added up again")
