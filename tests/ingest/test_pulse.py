"""How a run stands, told by its commit logs: live, ended, silent or dead, the last only where it can be known."""

import os
from pathlib import Path

import pytest
from support.waiting import ended_pid

from ratioscope.app.presentation.run_state import run_state
from ratioscope.collectors.collector import Collector
from ratioscope.errors import SourceError
from ratioscope.ingest.commits.liveness import (
    SILENT_SECONDS,
    WriterStatus,
    current_writers,
    sizes,
    steps_since,
    writer_statuses,
)
from ratioscope.process import here, process_start

HERE = here()
NOW = 1_000_000.0


def _word(**known: object) -> WriterStatus:
    own = {"host": HERE.host, "namespace": HERE.namespace, "pid": os.getpid(), "started": process_start(os.getpid())}
    return WriterStatus("w", 0, False, NOW - 7, **{**own, **known})  # type: ignore[arg-type]


def test_a_writer_is_alive_as_long_as_its_very_process_runs() -> None:
    assert _word().state(HERE) == "alive"
    assert _word(started="1").state(HERE) == "gone", "another process has its number"
    assert _word(pid=ended_pid()).state(HERE) == "gone"


@pytest.mark.parametrize("known", [{"host": "other"}, {"namespace": "pid:[1]"}, {"namespace": None}, {"pid": None}])
def test_a_writer_of_another_host_or_container_is_never_called_dead(known: dict[str, object]) -> None:
    word = _word(**{"pid": ended_pid(), **known})
    assert word.state(HERE) == "unknown"
    assert "live" in run_state([word], HERE, NOW).word
    silent = run_state([word], HERE, NOW + SILENT_SECONDS)
    assert silent.word == "▲ silent for 2 minutes" and "cannot check its process" in silent.why


def test_how_a_run_stands_is_said_in_words_and_marks() -> None:
    closed = WriterStatus("c", 0, True, NOW - 60)
    dead = _word(pid=ended_pid())
    assert run_state([], HERE, NOW).ended and run_state([closed], HERE, NOW).word == "ended"
    assert run_state([_word(), closed], HERE, NOW).word == "● live"
    assert run_state([_word(), dead], HERE, NOW).word == "● live · ▲ 1 of 2 writers dead"
    assert run_state([dead, closed], HERE, NOW + 400).word == "■ dead: no commit for 6 minutes, its process is gone"
    told = run_state([dead, _word(pid=ended_pid(), step=4)], HERE, NOW)
    assert (told.brief, told.step, told.ago) == ("■ dead", 4, "7 seconds ago")
    assert "their 2 processes are gone" in run_state([dead, dead], HERE, NOW).word


def test_writers_of_older_attempts_have_ended_whatever_they_said() -> None:
    assert current_writers([WriterStatus("a", 0, False, NOW), None, WriterStatus("b", 1, True, NOW)]) == [
        WriterStatus("b", 1, True, NOW)
    ]


def test_the_logs_of_a_run_tell_what_came_since(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        for step in range(3):
            collector.log(step=step, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
        collector.flush(timeout=60)
        before = sizes(run)
        known = writer_statuses(run, before, {})
        ((_, word),) = known.values()
        assert word.state(HERE) == "alive" and not word.closed and writer_statuses(run, before, known) == known
        collector.log(step=7, rollout_logprobs=[[-1.0]], old_logprobs=[[-1.1]])
        collector.flush(timeout=60)
        assert steps_since(run, before, sizes(run)) == {7} and steps_since(run, sizes(run), sizes(run)) == set()
        assert steps_since(run, {}, sizes(run)) == {0, 1, 2, 7}
    ((_, word),) = writer_statuses(run, sizes(run), known).values()
    assert word.closed and word.state(HERE) == "closed"


def test_a_folder_without_logs_has_no_writers_and_one_that_is_gone_is_told(tmp_path: Path) -> None:
    assert sizes(tmp_path) == {}
    with pytest.raises(SourceError, match="gone"):
        sizes(tmp_path / "no")


def test_what_is_no_log_of_ours_is_not_believed(tmp_path: Path) -> None:
    logs = tmp_path / "commits"
    logs.mkdir()
    (logs / "a.jsonl").write_bytes(b'{"kind": "open", "pid": 1}\n\xff\xfe')
    (logs / "b.jsonl").symlink_to("/etc/passwd")
    os.mkfifo(logs / "c.jsonl")
    found = sizes(tmp_path)
    assert list(found) == ["commits/a.jsonl"]
    assert [word for _, word in writer_statuses(tmp_path, found, {}).values()] == [None]
    assert steps_since(tmp_path, {}, found) == set()
