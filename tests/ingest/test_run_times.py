"""When each step was first committed: from token rows or from statistics alone, over writers and attempts."""

from pathlib import Path

import pyarrow as pa
from support.real_runs import records
from support.run_folders import FakeWriter, by_step, few

from ratioscope.ingest.run import open_run
from ratioscope.metrics.engines.numpy_engine import statistics

STEPS = by_step(few(records("trl_vllm_base"), 4, 2))


def step_of(rows: pa.Table) -> int:
    return int(rows["step"][0].as_py())


def seconds(path: Path) -> list[float]:
    """The times of all steps."""
    times = open_run(path).times
    assert times["step"].to_list() == open_run(path).steps
    return [time.timestamp() for time in times["time"]]


def test_a_step_has_the_time_of_its_first_commit(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path).open()
    wanted = []
    for rows in STEPS:
        wanted.append(writer.clock + 1)
        writer.step(rows)
    assert seconds(tmp_path) == wanted


def test_in_a_run_of_statistics_alone_the_last_step_of_a_segment_has_a_time(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path, segment_steps=2).open()
    wanted = []
    for rows in STEPS:
        wanted.append((step_of(rows), writer.clock + 1))
        writer.add_statistics(statistics(rows))
    known = {row["step"]: row["time"].timestamp() for row in open_run(tmp_path).times.to_dicts()}
    assert known.items() >= {wanted[1], wanted[3]} and known.items() <= set(wanted)


def test_the_attempt_that_is_shown_tells_the_time(tmp_path: Path) -> None:
    first = FakeWriter(tmp_path).open()
    for rows in STEPS:
        first.step(rows)
    second = FakeWriter(tmp_path, "r00000-host-2-abcdef", attempt=1, clock=first.clock + 1000).open()
    for rows in STEPS[2:]:
        second.step(rows)
    found = seconds(tmp_path)
    assert found == sorted(found) and found[2] - found[1] > 900
