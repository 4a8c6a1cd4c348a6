"""A Run reads what writers committed, and nothing else."""

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from support import real_runs, run_folders

from ratioscope import open_run
from ratioscope.metrics.distribution import Level
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import GAPS

STALE = real_runs.records("trl_vllm_stale4")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The run as one writer recorded it, and as three did."""
    base = tmp_path_factory.mktemp("runs")
    return {n: run_folders.write_run(base / f"stale{n}", STALE, writers=n, segment_steps=5) for n in (1, 3)}


def expected(by: tuple[str, ...] = ("step",)) -> pl.DataFrame:
    frame = pl.DataFrame(statistics(STALE))
    return metric_frame(frame, by)


@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.parametrize("by", [("step",), (), ("step", "lag"), ("lag",), ("position",)], ids=str)
def test_metrics_are_those_of_all_rows_whoever_wrote_them(
    folders: dict[int, Path], writers: int, by: tuple[str, ...]
) -> None:
    run = open_run(folders[writers])
    assert_frame_equal(run.metrics(by), expected(by), rel_tol=1e-9)
    assert not run.quarantined and not run.notes and run.exact()


def test_a_run_says_what_it_holds(folders: dict[int, Path]) -> None:
    run = open_run(folders[3])
    assert run.name == "stale3" and run.info["trainer"] == "fake"
    assert run.steps == list(range(0, 24, 2))
    assert run.gaps == tuple(GAPS) and run.policies == ("rollout", "old", "current")
    assert run.conservation.offered == run.conservation.written == len(STALE) and run.conservation.pending == 0
    assert run.writers["rank"].to_list() == [0, 1, 2] and run.writers["closed"].null_count() == 0
    assert run.uncommitted == [] and run.shadowed == ()
    assert "'stale3': 12 steps, mismatch, total, drift" in repr(run)
    assert_frame_equal(run.metrics("lag"), run.metrics(("lag",)))
    assert run.metrics_pandas("step").shape == run.metrics().shape


def test_the_distributions_of_several_levels_are_those_of_each(folders: dict[int, Path]) -> None:
    levels: tuple[Level, ...] = ("token", "sequence")
    for path in folders.values():
        at_once, one_by_one = open_run(path), open_run(path)
        for gap in one_by_one.gaps:
            wanted = {level: one_by_one.distribution(level, gap) for level in levels}
            for found in (at_once.distributions(levels, gap), one_by_one.distributions(levels, gap)):
                assert all(found[level].equals(wanted[level]) for level in levels) and found.keys() == wanted.keys()


def test_the_distribution_counts_every_token(folders: dict[int, Path]) -> None:
    run = open_run(folders[3])
    tokens = run.distribution("token", "mismatch").group_by("step").agg(pl.col("count").sum()).sort("step")
    assert_frame_equal(
        tokens.cast(pl.Float64),
        run.metrics().select("step", count="mismatch/tokens").cast(pl.Float64),
        check_dtypes=False,
    )
    weights = run.distribution("sequence", "mismatch").select(pl.col("log_sum_weight").exp().sum()).item()
    sequences = pl.concat(run.sequences(step) for step in run.steps)
    assert weights == pytest.approx(np.exp(sequences["mismatch/log_ratio_sum"]).sum(), rel=1e-9)


def test_sequences_and_tokens_measure_what_the_step_measures(folders: dict[int, Path]) -> None:
    run = open_run(folders[3])
    step = run.steps[-1]
    sequences, whole = run.sequences(step), run.metrics().filter(step=step)
    assert len(sequences) == int(whole["mismatch/sequences"][0])
    for gap in GAPS:
        assert sequences[f"{gap}/tokens"].sum() == whole[f"{gap}/tokens"][0]
        assert sequences[f"{gap}/max_abs_log_ratio"].max() == whole[f"{gap}/max_abs_log_ratio"][0]
    worst = sequences.sort("total/max_abs_log_ratio", descending=True).row(0, named=True)
    tokens = run.sequence(step, worst["sequence_id"])
    assert len(tokens) == worst["length"]
    assert tokens["total"].abs().arg_max() == worst["total/worst_position"]
    assert tokens["total"].sum() == pytest.approx(worst["total/log_ratio_sum"], rel=1e-9)
    assert tokens["total_weight"].to_list() == pytest.approx(np.exp(tokens["total"].to_numpy()).tolist())
    difference = (tokens["current_logprob"].cast(pl.Float64) - tokens["rollout_logprob"].cast(pl.Float64)).alias(
        "total"
    )
    assert_frame_equal(difference.to_frame(), tokens.select("total"))


def test_lazy_tokens_and_records_hold_every_row(folders: dict[int, Path]) -> None:
    run = open_run(folders[3])
    assert run.records().explain().count("SCAN") == 1, "files of our own are one scan, however many"
    records = run.records().collect().sort("step", "sequence_id")
    original = pl.DataFrame(STALE)
    assert_frame_equal(records, original.sort("step", "sequence_id"))
    means = run.tokens().group_by("step").agg(pl.col("mismatch").mean()).sort("step").collect()
    assert means["mismatch"].to_list() == pytest.approx(run.metrics()["mismatch/mean_log_ratio"].to_list(), rel=1e-9)
    chosen = run.tokens(run.steps[:3]).filter(pl.col("mismatch").abs() > 0.1).select("step", "token_id").collect()
    assert set(chosen["step"]) <= set(run.steps[:3]) and len(chosen) > 0
    assert run.tokens().head(7).collect().height == 7
