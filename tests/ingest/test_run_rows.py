"""What the statistics on record do not hold is computed from token rows: by the same engine, said so, and kept outside."""

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal
from support import real_runs, run_folders
from support.run_folders import FakeWriter

from ratioscope import open_run
from ratioscope.errors import ConfigError
from ratioscope.ingest.files.cache import Cache
from ratioscope.ingest.files.cache_folder import cache_folder
from ratioscope.ingest.files.quarantine import CountedSetAside
from ratioscope.ingest.rows.slices import ON_DEMAND
from ratioscope.ingest.statistics import row_statistics
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import GAPS

STALE = run_folders.few(real_runs.records("trl_vllm_stale4"), steps=4, rows=8)
STEPS = run_folders.by_step(STALE)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def whole(tmp_path: Path) -> pl.DataFrame:
    return open_run(run_folders.write_run(tmp_path / "whole", STALE)).metrics()


def two_processes(root: Path, steps: list[pa.Table]) -> tuple[FakeWriter, FakeWriter]:
    """An engine that records what it sampled, and a trainer that records what it recomputed."""
    engine = FakeWriter(root, "r00000-engine-1-aaaaaa").open()
    trainer = FakeWriter(root, "r00000-trainer-1-bbbbbb").open()
    for rows in steps:
        engine.step(run_folders.only(rows, ["rollout"]), with_statistics=False)
        trainer.step(run_folders.only(rows, ["old", "current"], minibatch=0))
    return engine, trainer


def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps of which statistics are computed from now on."""
    found: list[int] = []

    def noting(records: pa.Table, **options: Any) -> pa.Table:
        found.extend(np.unique(records["step"].to_numpy()).tolist())
        return statistics(records, **options)

    monkeypatch.setattr(row_statistics, "statistics", noting)
    return found


def test_a_gap_whose_sides_two_processes_recorded_is_computed_from_rows(tmp_path: Path, whole: pl.DataFrame) -> None:
    two_processes(tmp_path / "run", STEPS)
    run = open_run(tmp_path / "run")
    assert run.gaps == tuple(GAPS) and run.policies == ("rollout", "old", "current")
    assert_frame_equal(run.metrics().select(whole.columns), whole, rel_tol=1e-12)
    assert any(
        "mismatch, total of 4 steps from 16 to 22: computed from token rows" in note and "different processes" in note
        for note in run.notes
    )
    assert run.exact()
    worst = run.sequences(22).sort("mismatch/max_abs_log_ratio", descending=True)
    assert worst["mismatch/tokens"].sum() == whole.filter(step=22)["mismatch/tokens"][0]


def test_what_was_computed_is_not_computed_again(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, whole: pl.DataFrame
) -> None:
    engine, trainer = two_processes(tmp_path / "run", STEPS[:3])
    steps = computed(monkeypatch)
    run = open_run(tmp_path / "run")
    run.metrics()
    run.metrics(("step", "position"))
    run.distribution("token", "total")
    assert sorted(steps) == [16, 18, 20]
    open_run(tmp_path / "run").metrics()
    assert sorted(steps) == [16, 18, 20]
    for writer, policies in ((engine, ["rollout"]), (trainer, ["old", "current"])):
        writer.step(
            run_folders.only(STEPS[3], policies, 0 if writer is trainer else None), with_statistics=writer is trainer
        )
        run.refresh()
    assert_frame_equal(run.metrics().select(whole.columns), whole, rel_tol=1e-12)
    assert steps == [*steps[:3], 22]
    assert len(list(own_cache.rglob("*.parquet"))) == 1, "a growing block leaves one table"
    assert not [path for path in (tmp_path / "run").rglob("*") if "cache" in path.name]


def test_a_changed_file_is_not_taken_from_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two_processes(tmp_path / "one", STEPS[:2])
    open_run(tmp_path / "one").metrics()
    moved = [
        run_folders.replaced(rows, "old_logprobs", rows["rollout_logprobs"].combine_chunks()) for rows in STEPS[:2]
    ]
    two_processes(tmp_path / "two", moved)
    steps = computed(monkeypatch)
    assert open_run(tmp_path / "two").metrics()["mismatch/kl_k3"].to_list() == [0.0, 0.0]
    assert len(steps) == 2


@pytest.mark.parametrize("state", ["damaged", "a file", "read-only", "no home"])
def test_a_cache_that_cannot_be_used_is_as_if_it_were_empty(
    tmp_path: Path, own_cache: Path, monkeypatch: pytest.MonkeyPatch, state: str, whole: pl.DataFrame
) -> None:
    two_processes(tmp_path / "run", STEPS)
    if state == "damaged":
        open_run(tmp_path / "run").metrics()
        for path in own_cache.rglob("*.parquet"):
            path.write_bytes(path.read_bytes()[:50])
    elif state == "a file":
        own_cache.write_text("not a folder")
    elif state == "read-only":
        monkeypatch.setattr("os.replace", _refusing)
    else:
        monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
        monkeypatch.setattr("os.path.expanduser", lambda path: path)
        assert cache_folder() is None
    assert_frame_equal(open_run(tmp_path / "run").metrics().select(whole.columns), whole, rel_tol=1e-12)
    assert not list(own_cache.rglob(".*")) if own_cache.is_dir() else True


def _refusing(*_: object) -> None:
    raise PermissionError("read-only")


def test_the_cache_makes_room_for_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ratioscope.ingest.files.cache.MOST_BYTES", 3000)
    cache = Cache(tmp_path / "kept")
    table = pa.table({"x": np.random.default_rng(0).random(100).tolist()})
    for number in range(6):
        cache.store(f"{number:064d}", table)
    kept = sum(path.stat().st_size for path in (tmp_path / "kept").iterdir())
    assert 0 < kept <= 3000


def sign(value: float) -> str:
    return "negative" if value < 0 else "positive" if value > 0 else "zero"


SLICES: dict[str, Callable[[dict[str, Any]], str]] = {
    "group_id": lambda row: str(row["group_id"]),
    "minibatch": lambda row: str(row["minibatch"]),
    "reward_sign": lambda row: sign(row["reward"]),
    "advantage_sign": lambda row: sign(row["advantages"][0]),
}


@pytest.mark.parametrize("name", sorted(SLICES))
def test_a_slice_made_on_demand_is_the_mean_over_its_rows(tmp_path: Path, name: str) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", STALE, writers=2))
    sums: dict[tuple[int, str], list[float]] = {}
    for row in STALE.to_pylist():
        gaps = [old - rollout for old, rollout in zip(row["old_logprobs"], row["rollout_logprobs"], strict=True)]
        sums.setdefault((row["step"], SLICES[name](row)), []).extend(gaps)
    frame = run.metrics(("step", name))
    found = dict(zip(zip(frame["step"], frame[name], strict=True), frame["mismatch/mean_log_ratio"], strict=True))
    assert found.keys() == sums.keys()
    for key, values in sums.items():
        assert found[key] == pytest.approx(np.mean(values), rel=1e-6, abs=1e-9)
    assert frame["mismatch/tokens"].sum() == run.metrics(())["mismatch/tokens"][0]
    assert_frame_equal(run.metrics((name,)), open_run(tmp_path / "run").metrics((name,)))


def test_token_ids_add_up_to_all_tokens(tmp_path: Path) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", STALE))
    told: list[tuple[int, int]] = []
    frame = run.metrics(("token_id",), progress=lambda done, of: told.append((done, of)))
    ids = np.concatenate([np.asarray(row) for row in STALE["token_ids"].to_pylist()])
    assert told == [(4, 4)]
    assert len(frame) == len(np.unique(ids)) and frame["total/tokens"].sum() == len(ids)
    commonest = frame.sort("total/tokens", descending=True).row(0, named=True)
    values, counts = np.unique(ids, return_counts=True)
    assert commonest["total/tokens"] == counts.max() and int(commonest["token_id"]) in values[counts == counts.max()]


def test_length_deciles_are_of_their_own_step(tmp_path: Path) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", STALE))
    frame = run.metrics(("step", "length_decile")).filter(step=22)
    lengths = sorted(run_folders.lengths(STEPS[-1]))
    assert frame["mismatch/tokens"].sum() == sum(lengths)
    by_decile = frame.sort(pl.col("length_decile").cast(pl.Int64))
    means = (by_decile["mismatch/tokens"] / by_decile["mismatch/sequences"]).to_list()
    assert means == sorted(means) and means[0] == lengths[0] and means[-1] == lengths[-1]


def test_advantages_per_token_slice_by_token(tmp_path: Path) -> None:
    rows = STEPS[-1]
    lengths = run_folders.lengths(rows)
    signs = [[(-1.0, 0.0, 2.0, float("nan"))[place % 4] for place in range(length)] for length in lengths]
    signs[0] = [1.0]
    table = run_folders.replaced(rows, "advantages", pa.array(signs, pa.list_(pa.float32())))
    run = open_run(run_folders.write_run(tmp_path / "run", table))
    counted = run.metrics(("advantage_sign",)).select("advantage_sign", "mismatch/tokens").to_dict(as_series=False)
    expected = {"negative": 0, "zero": 0, "positive": lengths[0]}
    for length in lengths[1:]:
        for place in range(length):
            if place % 4 < 3:
                expected[("negative", "zero", "positive")[place % 4]] += 1
    assert dict(zip(counted["advantage_sign"], counted["mismatch/tokens"], strict=True)) == expected


def test_a_slice_whose_column_was_not_recorded_is_empty(tmp_path: Path) -> None:
    run = open_run(run_folders.write_run(tmp_path / "run", STALE))
    assert len(run.metrics(("finish_reason",))) == 0 and ON_DEMAND["finish_reason"].absent
    with pytest.raises(ConfigError, match=r"there is no slice 'colour'; there are all, replica, .*token_id"):
        run.metrics(("colour",))
    with pytest.raises(ConfigError, match="names 2 slices"):
        run.metrics(("lag", "rank"))


def test_rows_kept_by_chance_are_not_exact(tmp_path: Path) -> None:
    chances = pa.array([1.0, 0.5, None, None, None, None, None, None])
    rows = run_folders.replaced(STEPS[-1], "inclusion_probability", chances)
    run = open_run(run_folders.write_run(tmp_path / "run", rows))
    assert run.exact() and run.exact("lag") and not run.exact("group_id")
    two_processes(tmp_path / "split", [rows])
    split = open_run(tmp_path / "split")
    assert not split.exact() and not split.exact("rank")
    again = open_run(tmp_path / "split")
    assert not again.exact(), "the cache remembers"


def test_minibatches_written_later_are_joined_with_their_facts(tmp_path: Path) -> None:
    writer = FakeWriter(tmp_path / "run").open()
    facts = run_folders.only(STEPS[-1], ["rollout", "old"])
    writer.step(facts)
    writer.step(run_folders.only(STEPS[-1], ["current"], minibatch=0), with_statistics=False)
    writer.step(run_folders.only(STEPS[-1], ["current"], minibatch=1), with_statistics=False)
    run = open_run(tmp_path / "run")
    frame = run.metrics()
    tokens = sum(run_folders.lengths(STEPS[-1]))
    assert frame["mismatch/tokens"][0] == tokens and frame["total/tokens"][0] == frame["drift/tokens"][0] == 2 * tokens
    assert run.metrics(("minibatch",))["total/tokens"].drop_nulls().to_list() == [tokens, tokens]
    name = STEPS[-1]["sequence_id"][0].as_py()
    assert run.sequence(22, name)["minibatch"].unique().to_list() == [None]
    later = run.sequence(22, name, minibatch=1)
    assert later["total"].null_count() == 0 and later["rollout_logprob"].null_count() == 0
    counted = run.tokens().select(pl.col("mismatch", "total").is_not_null().sum()).collect()
    assert counted.row(0) == (tokens, 2 * tokens)


def on_rows(cache: Path, damaged: set[int]) -> Callable[[Sequence[int]], set[int]]:
    """Computes statistics of these steps, and returns the steps that have some. damaged: steps whose file cannot be read now."""
    aside = CountedSetAside(lambda path, reason: None)

    def table(files: Any, columns: Any) -> pa.Table:
        step = int(files[0].path)
        if step in damaged:
            aside(files[0].path, "it is damaged")
        return STEPS[step % 4].slice(0, 0 if step in damaged else None)

    of_rows = row_statistics.RowStatistics(cast(Any, SimpleNamespace(table=table)), Cache(cache), aside)

    def steps_of(steps: Sequence[int]) -> set[int]:
        files = {step: [cast(Any, SimpleNamespace(path=str(step), sha256=f"{step:064x}", tokens=1))] for step in steps}
        return set(of_rows.of(files, None).frame["step"].to_list())

    return steps_of


def test_nothing_is_kept_of_a_step_with_a_file_that_could_not_be_read(own_cache: Path) -> None:
    """The file may come back, from a backup or a mount, with the digest under which a table is kept."""
    damaged = {2}
    steps_of = on_rows(own_cache, damaged)
    assert len(steps_of(range(4))) == 3
    damaged.clear()
    assert len(steps_of(range(4))) == len(on_rows(own_cache, damaged)(range(4))) == 4


def test_the_table_of_one_unfinished_block_outlives_that_of_another(own_cache: Path) -> None:
    """Steps that lack statistics and steps of two processes are computed apart, each with an unfinished block."""
    steps_of = on_rows(own_cache, set())
    for steps in ((0, 1), (2, 3), (0, 1, 2)):
        steps_of(steps)
    assert len(list(own_cache.rglob("*.parquet"))) == 2, "one of 0 to 2, and one of 2 and 3"
