"""Every metric against the oracle, and the laws they obey."""

import math
import re
from collections.abc import Sequence
from decimal import Decimal, localcontext

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.oracle import ERRORS, ORACLE
from support.ragged import BROKEN, EXTREME, ORDINARY, Row, gap_of, measured, rows_of, sampled_rows, stats, table
from support.sizes import examples

from ratioscope.metrics.columns import SHIFTS, token_columns
from ratioscope.metrics.definitions.divergence import k3
from ratioscope.metrics.definitions.registry import METRICS, STATISTICS, statistics_of
from ratioscope.metrics.frame import unavailable
from ratioscope.record import GAPS

LOOSE = ("prob_corr", "logprob_corr", "shift_corr", "excess_kurt", "variance_ratio", "pareto_k", "_z")
LAWS = examples(25)


def assert_agrees(rows: Sequence[Row], gap: str) -> None:
    """Every metric and standard error of the gap equals the oracle's.

    Tolerances: sums of float64 agree to 1e-9; a spread from raw moments loses what its mean is larger, so standard
    errors and correlations are compared at 1e-6 of the value they belong to; tails are kept in float32.
    """
    ours, theirs = measured(table(rows)), gap_of(rows, gap)
    for metric in METRICS:
        if gap not in metric.gaps:
            continue
        value = ORACLE[metric.name](theirs)
        loose = metric.name.startswith(LOOSE) or metric.name.endswith(LOOSE)
        close = pytest.approx(value, rel=1e-5 if loose else 1e-9, abs=1e-7 if loose else 1e-12, nan_ok=True)
        assert ours[f"{gap}/{metric.name}"] == close, metric.name
        if metric.error:
            error = ERRORS[metric.name](theirs)
            scale = 0.0 if math.isnan(value) else 1e-6 * (1 + abs(value))
            assert ours[f"{gap}/{metric.name}_se"] == pytest.approx(error, rel=1e-6, abs=scale, nan_ok=True), (
                metric.name
            )


def test_every_metric_has_an_oracle() -> None:
    assert {metric.name for metric in METRICS} == set(ORACLE)
    assert {metric.name for metric in METRICS if metric.error} == set(ERRORS)


def test_every_metric_has_a_card() -> None:
    for metric in METRICS:
        assert metric.formula and metric.meaning and metric.unit and metric.estimator and metric.weighting
        assert all(band.source and band.reading for band in metric.bands)


def test_every_meaning_begins_with_the_thing_that_is_measured() -> None:
    """Readers of a list see the first sentence alone: a condition there would leave them without the thing."""
    begun = re.compile(r"(If|It|As|About|Above|Below|Near|Positive|Negative|Typical|Trainers|One|\d)\b")
    assert [metric.name for metric in METRICS if begun.match(metric.meaning)] == []


def test_every_mean_has_a_standard_error() -> None:
    assert {m.name for m in METRICS if m.estimator in ("mean", "share", "K1", "K2", "K3")} <= set(ERRORS)


def test_statistic_names_are_unique() -> None:
    assert len({statistic.name for statistic in STATISTICS}) == len(STATISTICS)


@pytest.mark.parametrize("gap", GAPS)
@pytest.mark.parametrize("noise", [0.02, 0.5])
def test_metrics_equal_the_oracle_on_a_batch(gap: str, noise: float) -> None:
    assert_agrees(sampled_rows(3, sequences=150, longest=24, noise=noise), gap)


@LAWS
@given(rows=rows_of(ORDINARY, current=True))
def test_metrics_equal_the_oracle_on_any_ragged_rows(rows: list[Row]) -> None:
    for gap in GAPS if rows else ():
        assert_agrees(rows, gap)


@LAWS
@given(rows=rows_of(ORDINARY | BROKEN))
def test_metrics_equal_the_oracle_where_tokens_are_set_aside(rows: list[Row]) -> None:
    ours = measured(table(rows))
    for name in ("tokens", "sequences", "non_finite", "sequences_set_aside", "zero_weight_tokens", "empty_sequences"):
        assert ours.get(f"mismatch/{name}", 0) == ORACLE[name](gap_of(rows, "mismatch"))
    for name in ("kl_k3", "mean_weight_token", "ess_token", "abs_log_ratio", "ess_sequence"):
        if rows:
            wanted = ORACLE[name](gap_of(rows, "mismatch"))
            assert ours[f"mismatch/{name}"] == pytest.approx(wanted, rel=1e-9, abs=1e-12, nan_ok=True), name


@LAWS
@given(rows=rows_of(ORDINARY | EXTREME | BROKEN, current=True))
def test_no_value_is_bad_enough_to_raise_or_to_break_a_law(rows: list[Row]) -> None:
    ours = measured(table(rows))
    for name, value in ours.items():
        metric = name.split("/")[1]
        if math.isnan(value):
            continue
        if metric.startswith("ess_") and not metric.endswith("_se"):
            assert 0 < value <= 1, name
        if metric in ("kl_k2", "kl_k3", "abs_log_ratio", "prob_diff") or metric.endswith("_se"):
            assert value >= 0, name
        if metric.startswith(("share_", "one_sided")) and not metric.endswith("_se"):
            assert 0 <= value <= 1, name
        if "correlation" in metric:
            assert -1 <= value <= 1, name


@LAWS
@given(rows=rows_of(ORDINARY))
def test_equal_policies_give_zeros(rows: list[Row]) -> None:
    same = [
        {**row, "old_logprobs": row["rollout_logprobs"], "current_logprobs": row["rollout_logprobs"]} for row in rows
    ]
    ours = measured(table(same))
    for gap in GAPS if ours and ours["mismatch/tokens"] else ():
        zeros = [m for m in METRICS if gap in m.gaps and m.estimator in ("mean", "K1", "K2", "K3", "share", "extreme")]
        for metric in zeros:
            if metric.name.startswith(
                ("log_ppl_gap", "kl", "abs", "max", "min", "chi2", "share", "ppo", "prob", "mean_log")
            ):
                assert ours[f"{gap}/{metric.name}"] == pytest.approx(0, abs=1e-15), metric.name
        if gap != "drift":
            assert [ours[f"{gap}/ess_{level}"] for level in ("token", "sequence", "geometric")] == pytest.approx(
                [1.0] * 3, abs=1e-14
            )
            assert ours[f"{gap}/mean_weight_token"] == 1.0


@LAWS
@given(rows=rows_of(ORDINARY))
def test_k3_minus_k1_is_the_mean_weight_minus_one(rows: list[Row]) -> None:
    ours = measured(table(rows))
    if ours and ours["mismatch/tokens"]:
        k1, k3_, weight = (ours[f"mismatch/{name}"] for name in ("kl_direct", "kl_k3", "mean_weight_token"))
        # The largest of the three sets the rounding.
        assert k3_ - k1 == pytest.approx(weight - 1, abs=1e-12 * max(1.0, weight, abs(k1)))


@LAWS
@given(rows=rows_of(ORDINARY, current=True))
def test_total_is_mismatch_plus_drift_on_one_token_set(rows: list[Row]) -> None:
    ours = measured(table(rows))
    if ours and ours["mismatch/tokens"]:
        parts = ours["mismatch/mean_log_ratio"] + ours["drift/mean_log_ratio"]
        assert ours["total/mean_log_ratio"] == pytest.approx(parts, abs=1e-12)


@given(x=st.floats(-30, 30, allow_subnormal=False) | st.floats(1e-12, 1e-3) | st.floats(-1e-3, -1e-12))
def test_k3_is_never_negative_and_precise_down_to_the_smallest_ratio(x: float) -> None:
    ours = float(k3(np.array([x]), np)[0])
    assert ours >= 0
    if abs(x) >= 1e-8:
        with localcontext() as context:
            context.prec = 60
            exact = Decimal(x).exp() - 1 - Decimal(x)
            assert abs(Decimal(ours) - exact) <= Decimal(1e-13) * exact


def test_formulas_are_spelled_alike_by_numpy_and_torch() -> None:
    random = np.random.default_rng(0)
    earlier, later, entropy, given = (-random.exponential(1, (4, 9)) for _ in range(4))
    later[0, 0], later[1, 1], earlier[2, 2] = -math.inf, math.nan, -math.inf
    mask = random.random((4, 9)) > 0.2
    ours = token_columns(
        earlier, later, mask, np, entropy=entropy, advantage=given, pairs={shift: earlier for shift in SHIFTS}
    )
    a, b, on, h, g = (torch.from_numpy(array) for array in (earlier, later, mask, entropy, given))
    theirs = token_columns(a, b, on, torch, entropy=h, advantage=g, pairs={shift: a for shift in SHIFTS})
    with np.errstate(all="ignore"):
        for statistic in statistics_of("mismatch"):
            if statistic.level == "token":
                value = np.asarray(statistic.formula(ours, np), np.float64)
                other = statistic.formula(theirs, torch).to(torch.float64).numpy()
                np.testing.assert_allclose(value, other, rtol=1e-12, atol=1e-15, err_msg=statistic.name)


def test_the_only_metrics_without_value_say_why() -> None:
    kept = ("rollout_logprobs", "old_logprobs")
    rows = [{name: row[name] for name in kept} for row in sampled_rows(1, sequences=9, longest=9)]
    reasons = unavailable(stats(table(rows)))
    assert reasons["total/kl_k3"] == "because no row has both rollout_logprobs and current_logprobs"
    assert "entropy" in reasons["mismatch/surprisal_gap"]
    assert "tail points" in reasons["mismatch/pareto_k_sequence"]
    assert not {"mismatch/kl_k3", "mismatch/ess_sequence", "drift/chi2_token"} & set(reasons)


def test_misaligned_lists_are_counted_not_fatal() -> None:
    rows = [
        {"rollout_logprobs": [-1.0, -2.0, -3.0], "old_logprobs": [-1.0]},
        {"rollout_logprobs": [-1.0], "old_logprobs": [-1.5]},
    ]
    ours = measured(table(rows))
    assert (ours["mismatch/tokens"], ours["mismatch/non_finite"], ours["mismatch/sequences_set_aside"]) == (1, 3, 1)


def test_a_later_logprob_of_minus_infinity_is_a_weight_of_zero() -> None:
    ours = measured(table([{"rollout_logprobs": [-1.0, -1.0], "old_logprobs": [-1.0, -math.inf]}]))
    assert ours["mismatch/zero_weight_tokens"] == 1
    assert ours["mismatch/mean_weight_token"] == 0.5
    assert ours["mismatch/ess_token"] == pytest.approx(0.5)
    assert ours["mismatch/kl_k3"] == 0.0
    assert ours["mismatch/mean_weight_sequence"] == 0.0


def test_log_ratios_of_hundreds_of_nats_overflow_nothing_that_is_kept_in_logs() -> None:
    rows = [
        {"rollout_logprobs": [-900.0, -1.0], "old_logprobs": [-0.5, -1.0]},
        {"rollout_logprobs": [-1.0], "old_logprobs": [-1.0]},
    ]
    ours = measured(table(rows))
    assert ours["mismatch/ess_sequence"] == pytest.approx(0.5)
    assert ours["mismatch/ess_token"] == pytest.approx(1 / 3)
    assert ours["mismatch/log_mean_square_weight_sequence"] == pytest.approx(2 * 899.5 - math.log(2))
    assert ours["mismatch/chi2_sequence"] == math.inf
