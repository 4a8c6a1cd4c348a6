"""The labelled real runs read as the script that made them says, and as TRL logged them while it trained."""

import json
from functools import cache

import numpy as np
import polars as pl
import pytest
from support.histograms import from_row
from support.ragged import stats
from support.real_runs import FOLDER, INDEX, records

from ratioscope.metrics.frame import metric_frame
from ratioscope.metrics.merging import merge


@cache
def index_view(name: str) -> pl.DataFrame:
    """Statistics of the run without `current`: the index compares rollout with old, and takes entropy for old's."""
    return stats(records(name).drop_columns("current_logprobs"))


@pytest.mark.parametrize("name", INDEX)
def test_a_real_run_reads_as_its_index_says(name: str) -> None:
    row = metric_frame(index_view(name), by=()).row(0, named=True)
    wanted = INDEX[name]["metrics"]
    expected = {
        "tokens": wanted["n"],
        "sequences": wanted["seqs"],
        "abs_log_ratio": wanted["mean"],
        "max_abs_log_ratio": wanted["mx"],
        "mean_log_ratio": wanted["bias"],
        "chi2_token": wanted["chi2"],
        "ess_token": wanted["ess"],
        "prob_correlation": wanted["pear"],
        "slope": wanted["slope"],
        "surprisal_gap": -wanted["cal"],
    }
    for metric, value in expected.items():
        assert row[f"mismatch/{metric}"] == pytest.approx(value, rel=1e-9, abs=1e-12), metric
    # The index took K3 as mean(w - 1 - d), which cancels to seven digits on the run where d is 1e-5.
    assert row["mismatch/kl_k3"] == pytest.approx(wanted["k3"], rel=1e-6)
    # and its z with the population's standard deviation.
    assert row["mismatch/surprisal_gap_z"] == pytest.approx(-wanted["z"], rel=1 / wanted["n"])


@pytest.mark.parametrize("name", INDEX)
def test_the_best_shift_is_the_one_the_index_found(name: str) -> None:
    row = metric_frame(index_view(name), by=()).row(0, named=True)
    at = {shift: row[f"mismatch/shift_correlation_{shift:+d}"] for shift in (-2, -1, 1, 2)}
    at[0] = row["mismatch/logprob_correlation"]
    assert max(at, key=lambda shift: at[shift]) == INDEX[name]["metrics"]["lag"]


@pytest.mark.parametrize("name", INDEX)
def test_profiles_by_position_and_probability_read_as_the_index_says(name: str) -> None:
    wanted = INDEX[name]["metrics"]
    table = index_view(name).filter(gap="mismatch")

    def mean_abs(name: str, keys: list[str]) -> float:
        part = merge(table.filter(pl.col("slice") == name, pl.col("key").is_in(keys)), ())
        return float(part["sum_abs_log_ratio"][0] / part["finite_tokens"][0])

    assert mean_abs("position", ["0"]) == pytest.approx(wanted["p0"], rel=1e-9)
    assert mean_abs("position", ["16", "32", "64"]) == pytest.approx(wanted["p16"], rel=1e-9)
    assert mean_abs("probability", ["0.9", "0.99", "0.999"]) == pytest.approx(wanted["hi"], rel=1e-9)
    assert mean_abs("probability", ["0", "0.001", "0.01"]) == pytest.approx(wanted["lo"], rel=1e-9)


def trl_rounds(name: str) -> list[dict[str, float]]:
    """TRL's own log of the steps on which it sampled."""
    lines = [json.loads(line) for line in (FOLDER / f"{name}.trl_log.jsonl").read_text().splitlines()]
    return [line for line in lines if "sampling/sampling_logp_difference/mean" in line]


@pytest.mark.parametrize("name", ["trl_vllm_base", "trl_vllm_stale4"])
def test_the_numbers_that_trl_logged_are_reproduced(name: str) -> None:
    """TRL logs a round at the end of its first optimiser step, so its step is one more than the one of sampling.

    It computes in float32 and logs the weight after truncation at its default cap of 3; ours is before.
    """
    frame = stats(records(name)).filter(gap="mismatch", slice="all")
    metrics = {row["step"]: row for row in metric_frame(frame).iter_rows(named=True)}
    kept = {row["step"]: from_row(row) for row in frame.iter_rows(named=True)}
    rounds = trl_rounds(name)
    assert [line["step"] - 1 for line in rounds] == sorted(metrics)
    for line in rounds:
        step = int(line["step"]) - 1
        row, part = metrics[step], kept[step]
        assert row["mismatch/abs_log_ratio"] == pytest.approx(line["sampling/sampling_logp_difference/mean"], rel=2e-6)
        assert row["mismatch/max_abs_log_ratio"] == pytest.approx(
            line["sampling/sampling_logp_difference/max"], rel=2e-6
        )
        beyond = part.low >= np.log(3) - 1e-12
        truncated = np.exp(part.log_sum_weights[~beyond]).sum() + 3 * part.counts[beyond].sum()
        ratio = truncated / row["mismatch/tokens"]
        assert ratio == pytest.approx(line["sampling/importance_sampling_ratio/mean"], rel=2e-6)
        largest = min(np.exp(row["mismatch/max_log_ratio"]), 3.0)
        assert largest == pytest.approx(line["sampling/importance_sampling_ratio/max"], rel=2e-6)
        smallest = np.exp(row["mismatch/min_log_ratio"])
        assert smallest == pytest.approx(line["sampling/importance_sampling_ratio/min"], rel=2e-6)


def test_total_is_mismatch_plus_drift_at_every_step_of_a_real_run() -> None:
    frame = metric_frame(stats(records("trl_vllm_stale4")))
    parts = frame["mismatch/mean_log_ratio"] + frame["drift/mean_log_ratio"]
    np.testing.assert_allclose(frame["total/mean_log_ratio"].to_numpy(), parts.to_numpy(), atol=1e-12)
