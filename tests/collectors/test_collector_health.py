"""A writer that can no longer write finds its way back, says so once, and loses no statistics."""

import errno
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.broken_disk import broken_on, files_of_at_most
from support.step_arrays import step_arrays
from support.written_run import commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors.process.counts import Tally
from ratioscope.collectors.writing.health import Health
from ratioscope.collectors.writing.parquet_sink import ParquetSink
from ratioscope.collectors.writing.segments import Segments
from ratioscope.collectors.writing.sink import RowsOutcome
from ratioscope.collectors.writing.step_statistics import part_statistics


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
            assert collector.flush() is (step not in (3, 4, 5))
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
            assert collector.flush() is (step == 1)
            assert collector.counts.sequences.pending == (0 if step in (1, 5) else 40 * (step - 1))
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
            assert collector.flush() is (step != 2)
    assert states(run) == [(2, "ok -> degraded"), (3, "degraded -> ok")]
    (gap,) = commit_lines(run, "gap")
    assert "1.0 MB are free on the disk, of which 67.1 MB are to stay free" in gap["reason"]


def test_a_writer_that_cannot_keep_up_keeps_the_statistics(tmp_path: Path) -> None:
    run = tmp_path / "run"
    pressures: list[str | None] = [None, "the disk is too slow", None]

    class Late(ParquetSink):
        def write(self, step: int, rows: pa.Table, earlier: Any, tally: Tally, late: str | None) -> RowsOutcome:
            return super().write(step, rows, earlier, tally, pressures.pop(0))

    with Collector(run, sink=lambda: Late(run, {"name": "run"}, rank=0)) as collector:
        for step in (1, 2, 3):
            collector.log(step=step, **step_arrays(step))
            assert collector.flush() is (step != 2)
    assert states(run) == [(2, "ok -> degraded"), (3, "degraded -> ok")]
    assert open_run(run).metrics()["step"].to_list() == [1, 2, 3]


@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0, 100)), max_size=30))
def test_the_state_is_always_what_the_last_step_showed(steps: list[tuple[bool, bool, float]]) -> None:
    health, now, before = Health(), 0.0, "ok"
    for rows_fail, statistics_fail, wait in steps:
        now += wait
        rows = "full" if rows_fail or not health.may_write_rows(now) else None
        statistics = "full" if statistics_fail or not health.may_write_statistics(now) else None
        change = health.update(now, rows=rows, statistics=statistics)
        expected = "ok" if rows is None else "paused" if statistics is not None else "degraded"
        assert health.state == expected
        assert (change is not None) == (expected != before)
        before = expected


@given(st.integers(0, 20))
def test_whatever_failed_is_tried_again_within_half_a_minute(failures: int) -> None:
    health, now = Health(), 0.0
    for _ in range(failures):
        if health.may_write_rows(now):
            health.update(now, rows="full", statistics="full")
        now += 1.0
    assert health.may_write_rows(now + 30) and health.may_write_statistics(now + 30)
    health.update(now + 30, rows=None, statistics=None)
    assert health.state == "ok" and health.may_write_rows(now + 30)


def test_a_step_has_statistics_of_all_of_its_parts_or_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, run = tmp_path / "clean", tmp_path / "run"
    real, calls = part_statistics, iter(range(100))

    def fails_once(*values: Any) -> pa.Table:
        if next(calls) == 2:
            raise pa.ArrowMemoryError("malloc failed")
        return real(*values)

    for root, statistics in ((clean, real), (run, fails_once)):
        monkeypatch.setattr("ratioscope.collectors.writing.measured_steps.part_statistics", statistics)
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
            assert collector.flush() is (step == 1)
        monkeypatch.undo()
    assert open_run(tmp_path / "run").metrics()["step"].to_list() == [1, 2]


def test_what_is_neither_in_rows_nor_in_statistics_on_disk_is_told_as_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with Collector(run) as collector:
        for step in (1, 2, 3):
            if step == 2:
                broken_on(monkeypatch, "tokens", "statistics")
            collector.log(step=step, **step_arrays(step))
            assert collector.flush() is (step == 1)
    assert collector.counts.reasons == {"not written": 80} and not collector.counts.sequences.pending
    assert [(gap["step"], gap["sequences"]) for gap in commit_lines(run, "gap")] == [(2, 40), (3, 40)]
    assert all("No space left" in gap["reason"] for gap in commit_lines(run, "gap"))


def test_where_files_may_not_grow_statistics_are_written_in_smaller_segments(tmp_path: Path) -> None:
    run, most = tmp_path / "run", 0
    with Collector(tmp_path / "free") as collector:
        collector.log(step=1, **step_arrays(1))
        collector.flush()
        most = max(path.stat().st_size for path in (tmp_path / "free" / "statistics").iterdir())
    with files_of_at_most(round(1.2 * most)), Collector(run) as collector:
        for step in range(1, 26):
            collector.log(step=step, **step_arrays(step, rows=600))
            assert not collector.flush()
    assert collector.counts.reasons == {"in the statistics only": 25 * 600}
    assert open_run(run).metrics()["step"].to_list() == list(range(1, 26))


def test_statistics_that_waited_for_room_are_written_in_pieces_that_fit() -> None:
    files: dict[int, list[Any]] = {}

    def write(number: int, rows: pa.Table, steps: list[int]) -> dict[str, Any]:
        if len(rows) > room[0]:
            raise OSError(errno.EFBIG, "File too large")
        files[number] = rows["step"].to_pylist()
        return {"number": number, "steps": steps}

    room, segments = [0], Segments(write)
    for step in range(10):
        segments.roll_over(step)
        segments.add(pa.table({"step": [step]}))
        assert segments.save()[1] is not None and segments.waiting == set(range(step + 1))
    room[0] = 3
    entries, failure = segments.save()
    assert failure is None and segments.is_saved and not segments.waiting
    for step in (10, 11):
        segments.roll_over(step)
        segments.add(pa.table({"step": [step]}))
        more, failure = segments.save()
        entries += more
        assert failure is None
    assert sorted(step for held in files.values() for step in held) == list(range(12))
    assert {entry["number"]: entry["steps"] for entry in entries} == files
    room[0], before = 1, dict(files)
    segments.add(pa.table({"step": [12, 13, 13]}))  # step 13 fits in no segment
    segments.save()
    assert segments.waiting == {13} and {number: files[number] for number in before} == before


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), max_size=30))
def test_no_statistics_are_lost_or_twice_on_disk_whatever_room_there_is(days: list[tuple[int, int]]) -> None:
    files: dict[int, list[Any]] = {}
    committed: dict[int, list[Any]] = {}
    room, given_rows = [0], list[int]()

    def write(number: int, rows: pa.Table, steps: list[int]) -> dict[str, Any]:
        if len(rows) > room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        files[number] = rows["row"].to_pylist()
        return {"number": number}

    segments, step = Segments(write), 0
    for place, (room[0], ahead) in enumerate(days):
        step += ahead
        segments.roll_over(step)
        segments.add(pa.table({"step": [step], "row": [place]}))
        given_rows.append(place)
        committed |= {entry["number"]: files[entry["number"]] for entry in segments.save()[0]}
        on_disk = sorted(row for rows in files.values() for row in rows)
        assert len(set(on_disk)) == len(on_disk) and committed == files
        assert bool(segments.waiting) is (len(on_disk) < len(given_rows)) is not segments.is_saved
    room[0] = 100
    segments.save()
    assert sorted(row for rows in files.values() for row in rows) == given_rows
