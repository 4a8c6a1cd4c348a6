"""A writer that can no longer write finds its way back, says so once, and loses no statistics."""

import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_collector_budget import step_arrays
from written_run import commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors import durable_file
from ratioscope.collectors.counts import Tally
from ratioscope.collectors.health import Health
from ratioscope.collectors.sink import Outcome, ParquetSink
from ratioscope.collectors.step_statistics import part_statistics


def broken_on(monkeypatch: pytest.MonkeyPatch, *folders: str) -> None:
    """From here on files of these folders cannot be written."""
    real = durable_file.write_whole

    def write(root: Path, file: Path, data: bytes) -> None:
        if any(folder in file.parts for folder in folders):
            raise OSError(28, "No space left on device")
        real(root, file, data)

    monkeypatch.setattr("ratioscope.collectors.sink.write_whole", write)


class Clock:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def collector_at(run: Path, clock: Clock) -> Collector:
    return Collector(run, sink=lambda: ParquetSink(run, {"name": "run"}, rank=0, clock=clock))


def states(run: Path) -> list[tuple[int, str]]:
    notes = [(line["step"], line["note"]) for line in commit_lines(run, "event") if line["event"] == "state"]
    return [(step, note.split(":")[0]) for step, note in notes]


def test_without_room_for_token_rows_the_statistics_of_every_step_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    run, clock = tmp_path / "run", Clock()
    with caplog.at_level(logging.WARNING), collector_at(run, clock) as collector:
        for step in range(1, 8):
            if step == 3:
                broken_on(monkeypatch, "tokens")
            if step == 6:
                monkeypatch.undo()
                clock.now += 60
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
    assert states(run) == [(3, "ok -> degraded"), (6, "degraded -> ok")]
    assert set(token_rows(run)["step"].to_pylist()) == {1, 2, 6, 7}
    assert open_run(run).metrics()["step"].to_list() == list(range(1, 8))
    assert collector.counts.reasons == {"in the statistics only": 120}
    assert {gap["step"] for gap in commit_lines(run, "gap")} == {3, 4, 5}
    assert sum("ok -> degraded" in record.message for record in caplog.records) == 1


def test_while_nothing_can_be_written_statistics_wait_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, clock = tmp_path / "run", Clock()
    with collector_at(run, clock) as collector:
        for step in range(1, 6):
            if step == 2:
                broken_on(monkeypatch, "tokens", "statistics")
            if step == 5:
                monkeypatch.undo()
                clock.now += 60
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
    assert states(run) == [(2, "ok -> paused"), (5, "paused -> ok")]
    assert open_run(run).metrics()["step"].to_list() == [1, 2, 3, 4, 5]
    tally = collector.counts.sequences
    assert (tally.written, tally.dropped, tally.offered) == (80, 120, 200)


def test_a_disk_that_is_nearly_full_gets_no_token_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, free = tmp_path / "run", [1 << 40]
    real = os.statvfs

    def statvfs(path: Any) -> Any:
        found = real(path)
        fields = list(found)
        fields[1], fields[4] = 1, free[0]  # f_frsize, f_bavail
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", statvfs)
    with Collector(run) as collector:
        for step, left in ((1, 1 << 40), (2, 1 << 20), (3, 1 << 40)):
            free[0] = left
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
    assert states(run) == [(2, "ok -> degraded"), (3, "degraded -> ok")]
    (gap,) = commit_lines(run, "gap")
    assert "1 MB are free on the disk, of which 64 MB are to stay free" in gap["reason"]


def test_a_writer_that_cannot_keep_up_keeps_the_statistics(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pressures: list[str | None] = [None, "the disk is too slow", None]

    class Late(ParquetSink):
        def write(self, step: int, rows: pa.Table, earlier: Any, tally: Tally, late: str | None) -> Outcome:
            return super().write(step, rows, earlier, tally, pressures.pop(0))

    with Collector(run, sink=lambda: Late(run, {"name": "run"}, rank=0)) as collector:
        for step in (1, 2, 3):
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
    assert states(run) == [(2, "ok -> degraded"), (3, "degraded -> ok")]
    assert open_run(run).metrics()["step"].to_list() == [1, 2, 3]


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 100)), max_size=30))
def test_the_state_is_always_what_the_last_step_showed(steps: list[tuple[bool, bool, float]]) -> None:
    health, now, before = Health(), 0.0, "ok"
    for rows_fail, statistics_fail, wait in steps:
        now += wait
        rows = "full" if rows_fail or not health.may_write_rows(now) else None
        statistics = "full" if statistics_fail or not health.may_write_statistics(now) else None
        change = health.told(now, rows=rows, statistics=statistics)
        expected = "ok" if rows is None else "paused" if statistics is not None else "degraded"
        assert health.state == expected
        assert (change is not None) == (expected != before)
        before = expected


@given(st.integers(0, 20))
def test_whatever_failed_is_tried_again_within_half_a_minute(failures: int) -> None:
    health, now = Health(), 0.0
    for _ in range(failures):
        if health.may_write_rows(now):
            health.told(now, rows="full", statistics="full")
        now += 1.0
    assert health.may_write_rows(now + 30) and health.may_write_statistics(now + 30)
    health.told(now + 30, rows=None, statistics=None)
    assert health.state == "ok" and health.may_write_rows(now + 30)


def test_a_step_has_statistics_of_all_of_its_parts_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, run = tmp_path / "clean", tmp_path / "run"
    real, calls = part_statistics, iter(range(100))

    def fails_once(*values: Any) -> pa.Table:
        if next(calls) == 2:
            raise pa.ArrowMemoryError("malloc failed")
        return real(*values)

    for root, statistics in ((clean, real), (run, fails_once)):
        monkeypatch.setattr("ratioscope.collectors.sink.part_statistics", statistics)
        with Collector(root) as collector:
            for step in (1, 2, 3):
                for part in (7, 8):
                    collector.log(step=step, **step_arrays(part * step))
                    assert collector.flush()
    whole = open_run(clean).metrics()
    assert open_run(run).metrics()["mismatch/tokens"].to_list() == whole["mismatch/tokens"].to_list()


def test_statistics_that_wait_in_memory_are_tried_once_more_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Collector(tmp_path / "run") as collector:
        for step in (1, 2):
            if step == 2:
                broken_on(monkeypatch, "tokens", "statistics")
            collector.log(step=step, **step_arrays(step))
            assert collector.flush()
        monkeypatch.undo()
    assert open_run(tmp_path / "run").metrics()["step"].to_list() == [1, 2]
