"""`ratioscope note`: an event of a person in a run, seen on every page, that disturbs no writer and breaks no log."""

import errno
import json
from pathlib import Path

import pytest
from support.recorded import recorded

from ratioscope import layout, open_run
from ratioscope.app import cli
from ratioscope.app.cli import main
from ratioscope.app.upkeep import notes
from ratioscope.collectors.collector import Collector
from ratioscope.ingest.analysis.recorded_events import events_and_alerts
from ratioscope.ingest.maintenance.verify import verify

Captured = pytest.CaptureFixture[str]
SIDES = {"rollout_logprobs": [[-1.0, -2.0]] * 3, "old_logprobs": [[-1.1, -2.0]] * 3}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return recorded("trl_vllm_stale4", tmp_path / "stale", steps=4)


def test_a_note_is_seen_wherever_events_are(run: Path, tmp_path: Path, capsys: Captured) -> None:
    assert main(["note", str(run), "restarted node 7", "--step", "2"]) == cli.OK
    assert capsys.readouterr().out == "noted at step 2: restarted node 7\n"
    opened = open_run(run)
    assert ("note", "restarted node 7") in opened.events.filter(step=2).select("event", "note").rows()
    assert (2, "note", "restarted node 7", "event") in events_and_alerts(opened).events.rows()
    main(["info", str(run)])
    assert "step 2: restarted node 7" in capsys.readouterr().out
    main(["report", str(run), "-o", str(tmp_path / "x.md")])
    assert "| 2 | note | restarted node 7 |" in (tmp_path / "x.md").read_text()


def test_without_a_step_a_note_is_at_the_newest_one(run: Path, tmp_path: Path, capsys: Captured) -> None:
    main(["note", str(run), "now", "--json"])
    assert json.loads(capsys.readouterr().out)["step"] == max(open_run(run).steps)
    with Collector(tmp_path / "empty"):
        pass
    main(["note", str(tmp_path / "empty"), "before the first step"])
    assert open_run(tmp_path / "empty").events["step"].to_list() == [0]


def test_a_note_beside_a_writer_at_work_leaves_its_log_alone_and_a_reader_sees_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with Collector(folder) as collector:
        collector.log(step=0, sequence_ids=["a", "b", "c"], **SIDES)  # type: ignore[arg-type]
        collector.flush(timeout=60)
        (log,) = (folder / "commits").glob("*.jsonl")
        before, opened = log.read_bytes(), open_run(folder)
        assert main(["note", str(folder), "the reward server was down"]) == cli.OK
        assert log.read_bytes() == before
        assert opened.refresh() and "note" in opened.events["event"].to_list()
        collector.log(step=1, sequence_ids=["d", "e", "f"], **SIDES)  # type: ignore[arg-type]
    assert log.read_bytes().startswith(before)
    assert verify(folder, deep=True).sound
    assert opened.refresh() and opened.steps == [0, 1] and len(opened.writers) == 1


def test_the_log_of_a_note_is_chained_and_verify_finds_a_changed_one(run: Path) -> None:
    written = notes.note(run, "lowered the learning rate")
    log = run / written.log
    assert verify(run).sound and verify(run).unnumbered == 0
    lines = [layout.decode_line(line) for line in log.read_bytes().splitlines()]
    assert [line["kind"] for line in lines if line is not None] == ["offline", "event"]
    log.write_bytes(log.read_bytes().replace(b"lowered", b"raised!"))
    assert not verify(run).sound


def test_notes_survive_compaction_and_pruning(run: Path) -> None:
    notes.note(run, "before")
    assert main(["compact", str(run)]) == main(["prune", str(run), "--yes"]) == cli.OK
    notes.note(run, "after")
    assert open_run(run).events.filter(event="note")["note"].to_list() == ["before", "after"]
    assert verify(run, deep=True).sound


def test_a_secret_and_an_escape_sequence_reach_neither_disk_nor_terminal(run: Path, capsys: Captured) -> None:
    assert main(["note", str(run), "token hf_abcdefghijklmnopqrstuvwx \x1b[31m\u202e\nred"]) == cli.OK
    main(["info", str(run)])
    printed = capsys.readouterr().out
    assert "hf_abc" not in printed and "\x1b" not in printed and "\u202e" not in printed
    assert b"hf_abc" not in b"".join(log.read_bytes() for log in (run / "commits").glob("*"))


@pytest.mark.parametrize("text", ["", " \n", "x" * 2001])
def test_a_note_without_words_or_of_a_book_is_refused(run: Path, capsys: Captured, text: str) -> None:
    assert main(["note", str(run), text]) == cli.USAGE
    assert "wanted 1 to 2,000" in capsys.readouterr().err


def test_a_run_that_cannot_be_written_is_refused_in_one_line(
    run: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["note", str(tmp_path / "nowhere"), "x"]) == cli.UNREADABLE

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr("ratioscope.collectors.writing.log_appender.append", refuse)
    capsys.readouterr()
    assert main(["note", str(run), "x"]) == cli.UNREADABLE
    told = capsys.readouterr().err
    assert "cannot be written: Read-only file system; wanted a run folder that you may write" in told
    assert main(["prune", str(run), "--keep-steps", "1", "--yes"]) == cli.UNREADABLE
    assert f"{run} cannot be written: Read-only file system; wanted a run folder" in capsys.readouterr().err
    assert told.count("\n") == 1 and not list(run.glob("commits/offline-*"))


def test_no_note_is_written_through_a_link(run: Path, tmp_path: Path, capsys: Captured) -> None:
    (run / "commits").rename(tmp_path / "theirs")
    (run / "commits").symlink_to(tmp_path / "theirs")
    before = sorted(tmp_path.glob("theirs/*"))
    assert main(["note", str(run), "x"]) == cli.UNREADABLE
    assert sorted(tmp_path.glob("theirs/*")) == before and capsys.readouterr().err.count("\n") == 1
