"""A run on a far store, where each call takes long: calls are counted, and clocks go on with each of them."""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import layout, open_run
from ratioscope.ingest.commits import catalog
from ratioscope.ingest.files import listing

ROWS = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=1, rows=2)
FAR = 0.005
"""Seconds of a call."""


class Calls:
    """Counts calls that a network file system has to answer, and is a clock that each of them puts forward."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.threads: set[str] = set()
        self.rested = 0.0

    def __call__(self) -> float:
        return FAR * self.counts.total() + self.rested

    def counting(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            self.counts[name] += 1
            self.threads.add(threading.current_thread().name)
            return real(*arguments, **options)

        return call

    def of(self, work: Callable[[], object]) -> int:
        """Number of calls that the work makes."""
        before = self.counts.total()
        work()
        return self.counts.total() - before


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calls:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    counted = Calls()
    for name in ("open", "scandir", "stat", "lstat", "listdir"):
        monkeypatch.setattr(os, name, counted.counting(name, getattr(os, name)))
    return counted


def recorded(root: Path, steps: int) -> tuple[FakeWriter, Iterator[Any]]:
    """A run of so many steps that goes on."""
    more = (run_folders.replaced(ROWS, "step", _steps(step)) for step in range(1 << 30))
    writer = FakeWriter(root, "r00000-h-1-a").open()
    for _ in range(steps):
        writer.step(next(more))
    return writer, more


def _steps(step: int) -> Any:
    return pa.array([step] * len(ROWS), ROWS.schema.field("step").type)


def followed(calls: Calls, root: Path, steps: int) -> tuple[int, int, int]:
    """(calls to open the run, to look when nothing is new, to have the metrics with one step more)."""
    writer, more = recorded(root, steps)
    run = open_run(root)
    opened = calls.of(lambda: open_run(root))
    run.metrics()
    nothing = calls.of(run.refresh)
    writer.step(next(more))
    news = calls.of(lambda: (run.refresh(), run.metrics()))
    assert run.metrics()["step"].max() == steps
    return opened, nothing, news


def test_a_look_and_a_new_step_cost_the_same_calls_however_long_the_run_is(calls: Calls, tmp_path: Path) -> None:
    short, long = followed(calls, tmp_path / "short", 2), followed(calls, tmp_path / "long", 12)
    assert short[1:] == long[1:] and 0 < long[1] <= 12 and 0 < long[2] <= 40
    assert long[0] - short[0] == 10 * 2, "opening lists the folder of each step by two calls"


def test_a_far_store_is_asked_for_many_folders_at_a_time_and_a_near_one_is_not(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in range(40):
        folder = tmp_path / "run" / layout.TOKENS / f"step={step}"
        folder.mkdir(parents=True)
        (folder / "r00000-h-1-a-0.parquet").touch()
    near = listing.listing(tmp_path / "run")
    assert calls.threads == {threading.current_thread().name}
    monkeypatch.setattr(time, "perf_counter", calls)
    far = listing.listing(tmp_path / "run")
    assert far == near and len(far.token_files) == 40
    assert len(calls.threads) > 1


def test_a_step_folder_that_is_replaced_meanwhile_ends_no_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(tmp_path / "run", 3)
    first, second, _ = sorted((tmp_path / "run" / layout.TOKENS).iterdir())
    real = listing._side_by_side

    def replaced(*arguments: Any) -> Iterator[Any]:
        first.rename(tmp_path / "elsewhere")
        first.symlink_to(tmp_path / "elsewhere")
        second.rename(tmp_path / "away")
        return real(*arguments)

    monkeypatch.setattr(listing, "_side_by_side", replaced)
    found = listing.listing(tmp_path / "run")
    assert len(found.token_files) == 1 and list(found.foreign) == [f"{layout.TOKENS}/{first.name}"]


def test_a_long_run_with_a_damaged_log_is_compared_with_its_folders_in_a_tenth_of_the_time(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    recorded(root, 8)
    log = root / layout.commit_file("r00000-h-1-a")
    log.write_bytes(log.read_bytes()[:-5])
    monkeypatch.setattr(catalog, "_MANY", 4)
    monkeypatch.setattr(time, "monotonic", calls)
    run = open_run(root)
    compared = calls()
    assert any("unfinished last line" in note for note in run.notes)
    assert all(calls.of(run.refresh) <= 12 for _ in range(3))
    unnamed = FakeWriter(tmp_path / "other", "r00001-h-1-b").open().step(run_folders.replaced(ROWS, "step", _steps(8)))
    (root / unnamed).parent.mkdir()
    (tmp_path / "other" / unnamed).rename(root / unnamed)
    calls.rested += 9 * compared
    assert run.refresh() and 8 in run.steps


def test_a_log_that_is_whole_again_is_compared_at_once(
    calls: Calls, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "run"
    recorded(root, 8)
    log = root / layout.commit_file("r00000-h-1-a")
    content = log.read_bytes()
    log.write_bytes(content[:-5])
    monkeypatch.setattr(catalog, "_MANY", 4)
    monkeypatch.setattr(time, "monotonic", calls)
    run = open_run(root)
    assert run.notes
    log.write_bytes(content)
    assert run.refresh() and not run.notes
