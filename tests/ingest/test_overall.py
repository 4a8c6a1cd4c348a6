"""Overall statistics: rows of slice `all` of full segments, once more in few files. A run reads the same with and without."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest import mock

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from chaos.strike import Calls, raising, unsynced
from hypothesis import given, settings
from hypothesis import strategies as st
from support.run_folders import replaced
from support.unindexed import at
from support.written_run import commit_lines

from ratioscope import layout, open_run
from ratioscope.app.upkeep.maintenance import compact, prune
from ratioscope.collectors.process.counts import Tally
from ratioscope.collectors.writing import segments
from ratioscope.collectors.writing.parquet_file import commit_entry, parquet_bytes
from ratioscope.collectors.writing.parquet_sink import ParquetSink
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.files.parquet_files import ParquetFiles
from ratioscope.ingest.maintenance.verify import verify
from ratioscope.ingest.run import Run
from ratioscope.ingest.statistics import statistics_files
from ratioscope.metrics.definitions.tail import TAILS
from ratioscope.metrics.engines import statistics_table
from ratioscope.metrics.engines.statistics_table import sources
from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.merging import LONE

SEGMENT, TOGETHER = 2, 3
"""Steps of a segment, and segments of a file, in here."""
PARTS = 7
"""Parts of a step's rows: together they have 140 tokens, enough to fit a tail."""


@pytest.fixture(autouse=True, scope="module")
def short_segments() -> Iterator[None]:
    with (
        mock.patch.object(layout, "SEGMENT_STEPS", SEGMENT),
        mock.patch.object(layout, "OVERALL_SEGMENTS", TOGETHER),
        unsynced(),
    ):
        yield


class Recording:
    """Writes steps of one rank as a collector's writer does."""

    def __init__(self, root: Path, rank: int = 0) -> None:
        self.sink = ParquetSink(root, {"name": "run"}, rank=rank, attempt=0)
        self.rank, self.written = rank, 0

    def write(self, *steps: int) -> None:
        self.sink.open()
        for step in steps:
            self.sink.write(step, self.rows(step), None, Tally(), None)

    def rows(self, step: int) -> pa.Table:
        """Further rows of a step at each call."""
        self.written += 1
        rows = pa.concat_tables(at(step, PARTS * self.rank + part) for part in range(PARTS))
        names = [f"{self.rank}-{self.written}-{row}" for row in range(len(rows))]
        return replaced(rows, "sequence_id", pa.array(names, rows["sequence_id"].type))

    def close(self) -> None:
        self.sink.say({"kind": layout.CLOSE})


def recorded(root: Path, steps: int, ranks: int = 1) -> Path:
    for rank in range(ranks):
        recording = Recording(root, rank)
        recording.write(*range(steps))
        recording.close()
    return root


def readings(run: Run) -> list[pl.DataFrame]:
    """Everything that is read from statistics, to the last bit."""
    names = ("kl_k3", "khat_token")
    by_slice = [run.metrics(by, names=names) for by in (("step",), (), ("step", "lag"))]
    return [
        run.metrics(),
        *by_slice,
        run.distribution("token", "mismatch"),
        run.metrics(steps=range(2, 5), names=names),
    ]


def without(root: Path) -> Path:
    """A copy of the run without its overall statistics."""
    copy = root.with_name(f"{root.name}-without")
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(root, copy, ignore=shutil.ignore_patterns(layout.OVERALL))
    return copy


def demand_same(one: list[pl.DataFrame], other: list[pl.DataFrame]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        assert mine.equals(theirs)


def failing(*_: object) -> Any:
    raise AssertionError("a tail was fitted")


@contextmanager
def opened_files() -> Iterator[list[str]]:
    """The statistics files that are opened in here."""
    paths, real = list[str](), ParquetFiles.opened

    def opened(files: ParquetFiles, path: str, *rest: Any) -> Any:
        paths.append(path)
        return real(files, path, *rest)

    with mock.patch.object(ParquetFiles, "opened", opened):
        yield paths


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9), st.integers(1, 2), st.booleans(), st.lists(st.integers(0, 8), max_size=2))
def test_a_run_reads_the_same_with_and_without(steps: int, ranks: int, closed: bool, late: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        for rank in range(ranks):
            recording = Recording(root, rank)
            recording.write(*range(steps))
            recording.write(
                *(step for step in late if step < steps - SEGMENT)
            )  # further rows of a step whose segment is full
            recording.close() if closed else None
        run, plain = open_run(root), open_run(without(root))
        demand_same(readings(run), readings(plain))
        assert run.quarantined == plain.quarantined == ()


def test_a_long_run_is_read_from_few_files(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", 10 * SEGMENT * TOGETHER)
    with opened_files() as paths:
        open_run(root).metrics()
    assert len(set(paths)) == 10 and all(path.startswith(f"{layout.OVERALL}/") for path in paths)


def test_metrics_by_step_need_no_tail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = recorded(tmp_path / "run", 12)
    expected = open_run(without(root)).metrics()
    assert expected["mismatch/pareto_k_token"].null_count() == 0
    monkeypatch.setattr(statistics_table, "tail_shapes", failing)
    read = list[str]()

    def noting(*asked: Any) -> list[str]:
        read.extend(sources(*asked))
        return sources(*asked)

    monkeypatch.setattr(statistics_files, "sources", noting)
    assert open_run(root).metrics().equals(expected)
    assert read and not {tail.name for tail in TAILS} & {*read}


def test_files_of_before_there_were_shapes_read_the_same(tmp_path: Path) -> None:
    with mock.patch.object(segments, "with_shapes", lambda rows: rows):
        old = recorded(tmp_path / "old", 12)
    assert not {*LONE} & {*pq.read_schema(next((old / layout.OVERALL).iterdir())).names}
    demand_same(readings(open_run(old)), readings(open_run(recorded(tmp_path / "new", 12))))


@pytest.mark.parametrize(("writers", "late"), [(2, ()), (1, (2, 3)), (1, (6,))])
def test_tails_that_are_merged_give_the_shape_of_their_union(
    tmp_path: Path, writers: int, late: tuple[int, ...]
) -> None:
    for rank in range(writers):
        recording = Recording(tmp_path / "run", rank)
        recording.write(*range(7), *late)
        recording.close()
    run = open_run(tmp_path / "run")
    assert run.metrics().equals(metric_frame(run.statistics()))


def test_a_short_run_and_one_that_was_killed_early_have_none(tmp_path: Path) -> None:
    assert not (recorded(tmp_path / "short", SEGMENT) / layout.OVERALL).exists()
    Recording(tmp_path / "killed").write(*range(2 * SEGMENT + 1))
    assert not (tmp_path / "killed" / layout.OVERALL).exists()
    assert open_run(tmp_path / "killed").metrics().height == 2 * SEGMENT + 1


def test_a_damaged_or_missing_file_costs_nothing(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", 12)
    expected = readings(open_run(without(root)))
    first, second = sorted((root / layout.OVERALL).iterdir())
    first.write_bytes(first.read_bytes()[:-9] + b"123456789")
    second.unlink()
    run = open_run(root)
    demand_same(readings(run), expected)
    assert run.quarantined == ()
    assert [trouble.file for trouble in verify(root).troubles] == [f"{layout.OVERALL}/{first.name}"]


@pytest.mark.parametrize("column", ["tokens", "token_tail_shape"])
def test_a_file_of_other_rows_is_found_by_a_deep_look(tmp_path: Path, column: str) -> None:
    root = recorded(tmp_path / "run", 6)
    assert verify(root, deep=True).sound
    (line,), lines = commit_lines(root, layout.OVERALL), commit_lines(root)
    rows = pq.read_table(root / line["file"])
    data = parquet_bytes(replaced(rows, column, pa.array(rows[column].to_numpy() + 1)), {})
    (root / line["file"]).write_bytes(data)
    again = {**line, **commit_entry(Path(line["file"]), data), "kind": layout.OVERALL}
    with next((root / layout.COMMITS).iterdir()).open("ab") as log:
        log.write(layout.chained_line(again, len(lines), str(lines[-1]["chain"]))[0])
    assert verify(root).sound
    assert [trouble.file for trouble in verify(root, deep=True).troubles] == [line["file"]]


def test_a_segment_that_was_committed_again_is_read_itself(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", 6)
    log = next((root / layout.COMMITS).iterdir())
    lines = commit_lines(root)
    segment = next(line for line in reversed(lines) if line.get("file", "").startswith(f"{layout.STATISTICS}/"))
    catalog = Catalog(root, ParquetFiles(root))
    catalog.refresh()
    assert all(each.overall is not None for each in catalog.segments())
    with log.open("ab") as file:
        file.write(layout.chained_line(segment, len(lines), str(lines[-1]["chain"]))[0])
    catalog.refresh()
    assert [each.overall is None for each in catalog.segments()] == [False, False, True]


def test_a_reader_that_follows_reads_nothing_again(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run")
    recording.write(*range(6))
    run = open_run(tmp_path / "run")
    run.metrics()
    recording.write(6)
    run.refresh()
    with opened_files() as paths:
        frame = run.metrics()
    assert (tmp_path / "run" / layout.OVERALL).exists() and frame.height == 7
    assert len(paths) == 1
    demand_same(readings(run), readings(open_run(without(tmp_path / "run"))))


def _interrupted(root: Path, nth: int) -> int:
    """A run whose writer ends before the n-th file call of its overall statistics; the number of calls that were made."""
    recording = Recording(root)
    recording.write(*range(6))
    calls = Calls(nth, "before", raising(Killed()))
    repeated = recording.sink._repeated

    def watched() -> list[str]:
        sys.setprofile(calls.profile)
        try:
            return repeated()
        finally:
            sys.setprofile(None)

    with mock.patch.object(recording.sink, "_repeated", watched), suppress(Killed):
        recording.write(6)
    return calls.seen


class Killed(BaseException):
    """The end of the writer."""


def test_a_writer_that_ends_anywhere_in_the_write_leaves_a_run_that_reads_the_same(tmp_path: Path) -> None:
    expected = open_run(without(recorded(tmp_path / "whole", 7))).metrics()
    number = _interrupted(tmp_path / "counted", 0)
    assert number > 5
    for nth in range(1, number + 1):
        root = tmp_path / f"run{nth}"
        _interrupted(root, nth)
        assert open_run(root).metrics().equals(expected)
        assert not [trouble for trouble in verify(root).troubles if trouble.file.endswith(".parquet")]


def test_a_disk_that_is_full_costs_the_repetition_alone(tmp_path: Path) -> None:
    recording = Recording(tmp_path / "run")
    with mock.patch.object(recording.sink._overall, "_write", side_effect=OSError(28, "No space left on device")):
        recording.write(*range(6))
        outcome = recording.sink.write(6, at(6), None, Tally(), None)
    assert outcome.rows and "overall statistics" in outcome.failures[0]
    recording.write(*range(7, 14))
    recording.close()
    assert len(list((tmp_path / "run" / layout.OVERALL).iterdir())) == 1
    demand_same(readings(open_run(tmp_path / "run")), readings(open_run(without(tmp_path / "run"))))


def test_files_of_merged_segments_are_deleted_with_them(tmp_path: Path) -> None:
    root = recorded(tmp_path / "run", 12, ranks=2)
    before = readings(open_run(root))
    compact(root, writers_ended=True)
    demand_same(readings(open_run(root)), before)
    prune(root, yes=True, writers_ended=True)
    assert not list((root / layout.OVERALL).iterdir())
    assert verify(root, deep=True).sound
