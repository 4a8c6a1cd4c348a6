"""Many small steps: their fixed cost is paid once for many of them, and none is lost because there are many."""

from typing import Any

import pyarrow as pa
from support.written_run import CollectingSink

from ratioscope import Collector
from ratioscope.collectors.writing.segments import Segments

ONE: dict[str, Any] = {"rollout_logprobs": [[-0.5]], "old_logprobs": [[-0.4]]}


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
