"""What is kept of long runs from one start to the next: the same numbers, and never those of other files."""

import os
import threading
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from support.real_runs import records
from support.run_folders import by_step, few, write_run

from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.run import Run
from ratioscope.ingest.statistics import kept_tables, merged_statistics, segment_tables, statistics_files

BYS = (("step",), ("step", "lag"), ("step", "turn"), (), ("lag",))
"""Groups of metrics. Turns are not on record, so that their frame has no row."""


@pytest.fixture(autouse=True)
def _long_runs_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_tables, "FEW_STEPS", 2)
    monkeypatch.setattr(merged_statistics, "BLOCK", 2)
    monkeypatch.setattr(segment_tables, "_MANY", 1)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_run(tmp_path / "run", few(records("trl_vllm_stale4"), 6, 8), segment_steps=2)


def kept(root: Path, folder: Path) -> Run:
    """The run opened, with a cache in which all that it makes is kept."""
    run = Run(root, Cache(folder))
    frames_of(run)
    _written()
    return run


def _written() -> None:
    for thread in threading.enumerate():
        if thread.name == "ratioscope-keep":
            thread.join()


def frames(root: Path, folder: Path | None) -> list[pl.DataFrame]:
    return frames_of(Run(root, Cache(folder)))


def frames_of(run: Run) -> list[pl.DataFrame]:
    return [*map(run.metrics, BYS), *run.distributions(("token", "sequence"), "mismatch").values()]


def no_reading(*_: object) -> None:
    raise AssertionError("a segment was read")


def test_a_later_start_gives_the_same_numbers_and_opens_no_segment(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = frames(root, None)
    kept(root, tmp_path / "cache")
    monkeypatch.setattr(segment_tables, "segment_rows", no_reading)
    for found, fresh in zip(frames(root, tmp_path / "cache"), wanted, strict=True):
        assert_frame_equal(found, fresh, check_exact=True)


def test_a_segment_that_changed_on_disk_is_read_again_and_set_aside(root: Path, tmp_path: Path) -> None:
    kept(root, tmp_path / "cache")
    victim = sorted((root / "statistics").iterdir())[1]
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    run = Run(root, Cache(tmp_path / "cache"))
    found = run.metrics()
    assert [item.path for item in run.quarantined] == [f"statistics/{victim.name}"]
    fresh = Run(root, Cache(None))
    assert_frame_equal(found, fresh.metrics(), check_exact=True)
    assert_frame_equal(run.metrics(("lag",)), fresh.metrics(("lag",)))


def test_a_file_that_was_touched_is_checked_again(root: Path, tmp_path: Path) -> None:
    """Its bytes may be others: what tells a file from another one is only as good as its inode, size and time."""
    kept(root, tmp_path / "cache")
    for segment in (root / "statistics").iterdir():
        os.utime(segment, ns=(1, 1))
    run = Run(root, Cache(tmp_path / "cache"))
    run.metrics()
    assert all(run._catalog.files.checked(item.path, str(item.sha256)) for item in run._visible.segments)


def test_another_run_in_the_same_place_gets_its_own_numbers(root: Path, tmp_path: Path) -> None:
    kept(root, tmp_path / "cache")
    for file in sorted(root.rglob("*"), reverse=True):
        file.unlink() if file.is_file() else file.rmdir()
    write_run(root, few(records("trl_vllm_base"), 6, 8), segment_steps=2)
    for found, fresh in zip(frames(root, tmp_path / "cache"), frames(root, None), strict=True):
        assert_frame_equal(found, fresh, check_exact=True)


def test_a_longer_run_keeps_the_numbers_of_its_old_steps(tmp_path: Path) -> None:
    table = records("trl_vllm_stale4")
    rows = few(table, 9, 8)
    root = write_run(tmp_path / "run", pa.concat_tables(by_step(rows)[:6]), segment_steps=2)
    kept(root, tmp_path / "cache")
    longer = write_run(tmp_path / "longer", rows, segment_steps=2)
    for file in sorted(longer.rglob("*")):
        target = root / file.relative_to(longer)
        if file.is_file() and not (target.exists() and target.read_bytes() == file.read_bytes()):
            target.parent.mkdir(parents=True, exist_ok=True)
            file.replace(target)
    for found, fresh in zip(frames(root, tmp_path / "cache"), frames(root, None), strict=True):
        assert_frame_equal(found, fresh, check_exact=True)


def test_a_damaged_or_foreign_cache_is_as_good_as_none(root: Path, tmp_path: Path) -> None:
    wanted = frames(root, None)
    kept(root, tmp_path / "cache")
    for number, file in enumerate(sorted((tmp_path / "cache").iterdir())):
        file.write_bytes(b"no table" if number % 2 else file.read_bytes()[:100])
    for found, fresh in zip(frames(root, tmp_path / "cache"), wanted, strict=True):
        assert_frame_equal(found, fresh, check_exact=True)
    for file in (tmp_path / "cache").iterdir():
        pl.DataFrame({"_made_of": ["x"], "step": ["no step"]}).write_parquet(file)
    for found, fresh in zip(frames(root, tmp_path / "cache"), wanted, strict=True):
        assert_frame_equal(found, fresh, check_exact=True)


def test_what_other_definitions_made_is_not_read(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(root, tmp_path / "cache")
    monkeypatch.setattr(kept_tables, "definitions", lambda: "of another version")
    read: list[str] = []
    one = statistics_files.segment_rows

    def counted(files: object, segment: object, asked: object) -> object:
        read.append(str(segment))
        return one(files, segment, asked)  # type: ignore[arg-type]

    monkeypatch.setattr(segment_tables, "segment_rows", counted)
    frames(root, tmp_path / "cache")
    assert len(set(read)) == 3


def test_metrics_by_name_are_those_among_all(root: Path) -> None:
    run = Run(root, Cache(None))
    for by in BYS:
        few_names = run.metrics(by, names=("kl_k3", "ess_token", "pareto_k_token"))
        assert_frame_equal(few_names, run.metrics(by).select(few_names.columns), check_exact=True)
        named = {"mismatch/ess_token_se", "mismatch/chi2_token"} & set(few_names.columns)
        assert named == ({"mismatch/ess_token_se"} if len(few_names) else set())


@pytest.mark.parametrize("by", BYS)
def test_few_metrics_after_all_are_taken_from_them(
    root: Path, by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("kl_k3", "ess_token", "sequences")
    wanted = Run(root, Cache(None)).metrics(by, names=names)
    run = Run(root, Cache(None))
    run.metrics(by)
    monkeypatch.setattr(segment_tables, "segment_rows", no_reading)
    assert_frame_equal(run.metrics(by, names=names), wanted, check_exact=True)


def test_metrics_of_a_range_are_those_among_all(root: Path) -> None:
    run = Run(root, Cache(None))
    steps = run.steps
    whole = Run(root, Cache(None)).metrics(("step", "lag"))
    found = run.metrics(("step", "lag"), steps=range(steps[2], steps[3] + 1))
    assert_frame_equal(found, whole.filter(pl.col("step").is_between(steps[2], steps[3])), check_exact=True)


def test_a_changed_formula_in_a_folder_below_retires_what_was_kept(tmp_path: Path) -> None:
    (tmp_path / "definitions").mkdir()
    formula = tmp_path / "definitions" / "divergence.py"
    formula.write_text("k3 = 1")
    before = kept_tables.digest_of([tmp_path])
    assert kept_tables.digest_of([tmp_path]) == before
    formula.write_text("k3 = 2")
    assert kept_tables.digest_of([tmp_path]) != before
    formula.write_text("k3 = 1")
    formula.rename(formula.with_name("weights.py"))
    assert kept_tables.digest_of([tmp_path]) != before
