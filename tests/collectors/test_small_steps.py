"""Many small steps: their fixed cost is paid once for many of them, and none is lost because there are many."""

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from support.step_arrays import step_arrays
from support.written_run import CollectingSink, commit_lines, token_rows

from ratioscope import Collector, open_run
from ratioscope.collectors.writing.log_appender import LogAppender
from ratioscope.collectors.writing.parquet_sink import ParquetSink
from ratioscope.collectors.writing.queue_items import LEAST_BYTES, Backlog
from ratioscope.collectors.writing.run_files import RunFiles
from ratioscope.collectors.writing.segments import Segments
from ratioscope.collectors.writing.step_statistics import part_statistics
from ratioscope.metrics.engines.agreement import disagreement
from ratioscope.metrics.merging import KEYS

ONE: dict[str, Any] = {"rollout_logprobs": [[-0.5]], "old_logprobs": [[-0.4]]}
PATIENCE = 60.0


class Held(ParquetSink):
    """A run folder that answers once its gate is open."""

    def __init__(self, run: Path, gate: threading.Event, **options: Any) -> None:
        super().__init__(run, {"name": "run"}, rank=0, **options)
        self._gate = gate

    def open(self) -> int:
        assert self._gate.wait(PATIENCE)
        return super().open()


def logged(run: Path, steps: Mapping[int, Mapping[str, Any]], **options: Any) -> Collector:
    """A collector that was closed, to which all steps were logged before the first was written."""
    gate = threading.Event()
    with Collector(run, sink=lambda: Held(run, gate), **options) as collector:
        for step, arrays in steps.items():
            collector.log(step=step, **arrays)
        gate.set()
    return collector


def recorded(run: Path) -> polars.DataFrame:
    """The statistics in the run folder, in which the rows of a step are side by side."""
    found = polars.concat([polars.read_parquet(file) for file in sorted((run / "statistics").iterdir())])
    assert found["step"].is_sorted()
    return found.sort(KEYS)


def appends(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of commit lines in each append to a log from here on, if it has any."""
    found, real = list[int](), LogAppender.say

    def say(log: Any, *entries: Mapping[str, Any]) -> None:
        if lines := sum(entry["kind"] == "commit" for entry in entries):
            found.append(lines)
        real(log, *entries)

    monkeypatch.setattr(LogAppender, "say", say)
    return found


def test_waiting_steps_are_committed_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = appends(monkeypatch)
    collector = logged(tmp_path / "run", {step: step_arrays(step, rows=1) for step in range(200)})
    assert collector.counts.sequences.written == collector.counts.sequences.offered > 0
    assert sum(found) == 200 + len(found)  # a line for each step, and one for each segment
    assert len(found) <= 8  # 64 steps a segment
    run = open_run(tmp_path / "run")
    assert run.metrics()["step"].to_list() == list(range(200))
    steps = [line["steps"] for line in commit_lines(tmp_path / "run", "commit") if "steps" in line]
    assert max(map(len, steps)) <= 64


def test_steps_measured_together_have_the_statistics_of_each_alone(tmp_path: Path) -> None:
    steps = {step: step_arrays(step, rows=1 + step % 3) for step in range(30)}
    logged(tmp_path / "together", steps)
    alone = tmp_path / "alone"
    with Collector(alone, sink=lambda: ParquetSink(alone, {"name": "run"}, rank=0)) as collector:
        for step, arrays in steps.items():
            collector.log(step=step, **arrays)
            assert collector.flush(PATIENCE)
    assert token_rows(alone).equals(token_rows(tmp_path / "together"))
    assert not disagreement(recorded(alone), recorded(tmp_path / "together"))


@pytest.mark.parametrize("bad", [0, 7])
def test_a_step_that_cannot_be_written_costs_none_of_those_beside_it(
    bad: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = RunFiles.write_tokens

    def write(files: Any, step: int, rows: pa.Table, **options: Any) -> dict[str, Any]:
        if step == bad:
            raise ValueError("no")
        return real(files, step, rows, **options)

    monkeypatch.setattr(RunFiles, "write_tokens", write)
    collector = logged(tmp_path / "run", {step: ONE for step in range(20)})
    assert collector.counts.sequences.dropped == 1 and collector.counts.reasons == {"in the statistics only": 1}
    steps = np.unique(np.asarray(token_rows(tmp_path / "run")["step"])).tolist()
    assert steps == [step for step in range(20) if step != bad]
    assert open_run(tmp_path / "run").metrics()["step"].to_list() == list(range(20))


def test_steps_that_cannot_be_measured_together_are_measured_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = part_statistics

    def measured(rows: pa.Table, *given: Any) -> pa.Table:
        if 7 in rows["step"].to_pylist():
            raise MemoryError
        return real(rows, *given)

    monkeypatch.setattr("ratioscope.collectors.writing.measured_steps.part_statistics", measured)
    collector = logged(tmp_path / "run", {step: ONE for step in range(20)})
    assert collector.counts.sequences.written == 20 and collector.counts.failures == {"statistics": 1}
    assert recorded(tmp_path / "run")["step"].unique().sort().to_list() == [step for step in range(20) if step != 7]


def test_a_sink_of_ones_own_gets_one_step_after_the_other() -> None:
    sink = CollectingSink({3: ValueError("no")})
    sink.gate.clear()
    collector = Collector("unused", sink=lambda: sink)
    for step in range(10):
        collector.log(step=step, **ONE)
    sink.gate.set()
    assert collector.close(PATIENCE)
    assert [step for step, _ in sink.rows] == [0, 1, 2, 4, 5, 6, 7, 8, 9]


def test_large_steps_wait_for_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = appends(monkeypatch)
    large = {"rollout_logprobs": np.full((8, 40_000), -1.0, np.float32)}
    logged(tmp_path / "run", {step: large for step in range(4)})
    assert found == [1] * 4


def test_thousands_of_tiny_steps_fit_into_the_queue(tmp_path: Path) -> None:
    collector = Collector(tmp_path / "run", sink=lambda: Held(tmp_path / "run", gate))
    gate = threading.Event()
    for step in range(3000):
        collector.log(step=step, **ONE)
    assert collector.counts.sequences.dropped == 0
    collector.close(0)  # they were taken; writing them is not this test's matter
    gate.set()


def test_the_queue_is_bounded_by_bytes_and_a_tiny_batch_counts_for_what_it_takes() -> None:
    backlog = Backlog(1 << 30, 1024 * LEAST_BYTES)
    held = [backlog.hold(8) for _ in range(1024)]
    assert not backlog.has_room(8) and backlog.pressure == 1.0
    for _ in range(2):
        held[0]()  # the second call changes nothing
    assert backlog.has_room(8) and not backlog.has_room(LEAST_BYTES + 1) and len(backlog) == 1023


def test_statistics_of_many_steps_lie_in_one_chunk_as_they_are_written() -> None:
    chunks = list[int]()

    def write(_number: int, rows: pa.Table, steps: list[int]) -> dict[str, Any]:
        chunks.append(rows["step"].num_chunks)
        return {"steps": steps}

    segments = Segments(write)
    for step in range(10):
        segments.add(pa.table({"step": [step]}))
        segments.save()
    assert chunks == [1] * 10


def test_small_batches_of_a_step_reach_the_sink_in_one_chunk() -> None:
    sink = CollectingSink()
    with Collector("unused", sink=lambda: sink) as collector:
        for _ in range(10):
            collector.log(step=1, **ONE)
    ((_, rows),) = sink.rows
    assert len(rows) == 10 and {column.num_chunks for column in rows.columns} == {1}
