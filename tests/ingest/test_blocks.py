"""Statistics are read and merged by blocks of steps: the same values, from no more rows at a time."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import real_runs, run_folders

from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.run import Run
from ratioscope.ingest.statistics import (
    merged_statistics,
    run_metrics,
    run_statistics,
    segment_tables,
    statistics_files,
)
from ratioscope.ingest.statistics.run_metrics import SLICES
from ratioscope.metrics.merging import merge

STALE = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=6, rows=4)
FRAMES = (("step",), ("step", "lag"), (), ("position",))


@pytest.fixture(scope="module", params=["whole", "a lost segment"])
def root(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run, and one that has the statistics of two steps from token rows, as a live run has those of its last step."""
    run = run_folders.write_run(tmp_path_factory.mktemp("blocks") / "run", STALE, writers=2, segment_steps=2)
    if request.param != "whole":
        min(run.glob("statistics/**/*.parquet")).unlink()
    return run


def frames(root: Path) -> list[pl.DataFrame]:
    run = Run(root, Cache(None))
    return [*(run.metrics(by) for by in FRAMES), run.statistics(), run.distribution("token", "mismatch")]


@pytest.mark.parametrize("prefetched", [0, 1, 1 << 24])
def test_blocks_of_steps_give_the_values_of_all_steps_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, prefetched: int
) -> None:
    whole = frames(root)
    merged: list[int] = []

    def counting(rows: pl.DataFrame, by: Any) -> pl.DataFrame:
        merged.append(rows["step"].n_unique())
        return merge(rows, by)

    monkeypatch.setattr(run_statistics, "merge", counting)
    monkeypatch.setattr(run_statistics, "SEGMENT_STEPS", 2)
    monkeypatch.setattr(run_statistics, "MOST_ROWS", 1)
    monkeypatch.setattr(segment_tables, "MOST_PREFETCHED", prefetched)
    monkeypatch.setattr(segment_tables, "_AT_ONCE", 1)
    monkeypatch.setattr(segment_tables, "_KEPT_AT_ONCE", 1)
    for one, other in zip(whole, frames(root), strict=True):
        assert_frame_equal(one, other, check_exact=True)
    assert max(merged) == 2 and len(merged) > len(FRAMES)


def test_slices_that_are_merged_one_by_one_have_the_values_of_slices_merged_at_once(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_once = frames(root)
    merged: list[set[str]] = []

    def noting(rows: pl.DataFrame, by: Any) -> pl.DataFrame:
        merged.append(set(rows["slice"]))
        return merge(rows, by)

    monkeypatch.setattr(run_statistics, "merge", noting)
    monkeypatch.setattr(run_statistics, "FEW_WRITERS", 0)
    for one, other in zip(at_once, frames(root), strict=True):
        assert_frame_equal(one, other, check_exact=True)
    assert max(map(len, merged)) == 1


def test_first_metrics_open_each_segment_once_if_their_rows_are_few(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of slice `all` are a small part of the files, so their bytes count and not those of the files."""
    segments = list((root / "statistics").glob("*.parquet"))
    monkeypatch.setattr(segment_tables, "MOST_PREFETCHED", sum(path.stat().st_size for path in segments) - 1)
    opened: list[str] = []
    read = statistics_files.segment_rows

    def counting(files: Any, segment: Any, asked: Any) -> Any:
        opened.append(segment.path)
        return read(files, segment, asked)

    monkeypatch.setattr(segment_tables, "segment_rows", counting)
    Run(root, Cache(None)).metrics()
    assert sorted(opened) == sorted(path.relative_to(root).as_posix() for path in segments)


@pytest.mark.parametrize("at_once", [3, 4096])
def test_a_few_metrics_of_all_slices_are_read_together(
    root: Path, at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    every = {name: Run(root, Cache(None)).metrics(("step", name)) for name in SLICES}
    run, names, read = Run(root, Cache(None)), ("kl_k3", "tokens"), list[Any]()
    monkeypatch.setattr(run_metrics, "STEPS_AT_ONCE", at_once)
    for number, name in enumerate(SLICES):
        frame = run.metrics(("step", name), names=names)
        assert_frame_equal(frame, every[name].select(frame.columns), check_exact=True)
        assert len(frame.columns) > 2 or not len(frame)
        if not number:
            monkeypatch.setattr(run_statistics.RunStatistics, "of", lambda *asked: read.append(asked))
    assert read == []


def test_what_metrics_by_step_read_is_merged_without_reading_it_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_statistics, "BLOCK", 4)
    alone, after = Run(root, Cache(None)).metrics(()), Run(root, Cache(None))
    after.metrics(("step",))
    read: list[set[int]] = []
    of = run_statistics.RunStatistics.of

    def counting(self: Any, visible: Any, name: str, columns: Any, steps: set[int]) -> pl.DataFrame:
        read.append(steps)
        return of(self, visible, name, columns, steps)

    monkeypatch.setattr(run_statistics.RunStatistics, "of", counting)
    assert_frame_equal(after.metrics(()), alone, check_exact=True)
    assert read == []
    after.metrics(("position",))
    assert read  # other slices were not read before


@pytest.mark.parametrize(
    ("writers", "steps", "wanted"), [(1, 5000, 4096), (64, 5000, 64), (10_000, 200, 64), (3, 10, 10)]
)
def test_a_block_is_whole_segments_with_few_rows(writers: int, steps: int, wanted: int) -> None:
    blocks = run_statistics._blocks(set(range(steps)), writers)
    assert max(map(len, blocks)) == wanted and sorted(set[int]().union(*blocks)) == list(range(steps))
    assert sum(map(len, blocks)) == steps and run_statistics._blocks(set(), writers) == [set()]


def test_a_slice_merged_over_many_steps_tells_its_progress_by_blocks(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merged_statistics, "BLOCK", 2)
    run, told = Run(root, Cache(None)), list[tuple[int, int]]()
    run.metrics("position", progress=lambda done, of: told.append((done, of)))
    run.metrics("position", progress=lambda done, of: told.append((done, of)))
    assert told == [(0, 6), (2, 6), (4, 6)]
