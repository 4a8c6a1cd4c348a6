"""The facts on a metric: its kind, neutral value, worse side, bound and signal, and what is read from them."""

import math

import numpy as np
import polars as pl
import pytest

from ratioscope.metrics.analysis.over_steps import unseen_share, worst_step
from ratioscope.metrics.definitions.registry import BY_NAME, METRICS, of_column
from ratioscope.metrics.grading.limits import limits_of
from ratioscope.metrics.grading.signals import SIGNALS
from ratioscope.metrics.metric import Metric

SIGNAL = {signal.name: signal for signal in SIGNALS}
GRADED = [metric for metric in METRICS if metric.signal]


def frame(name: str, values: list[float | None]) -> pl.DataFrame:
    return pl.DataFrame({"step": range(len(values)), f"mismatch/{name}": pl.Series(values, dtype=pl.Float64)})


def test_the_signal_of_a_metric_reads_this_metric() -> None:
    assert GRADED and all(SIGNAL[metric.signal].reads == metric.name for metric in GRADED)


@pytest.mark.parametrize("metric", GRADED, ids=lambda metric: metric.name)
def test_at_a_limit_the_signal_measures_its_threshold(metric: Metric) -> None:
    signal = SIGNAL[metric.signal]
    for limit, threshold in zip(limits_of(metric, signal.gaps[0]), (signal.watch, signal.act), strict=False):
        at, none = np.array([limit.at]), np.array([np.nan])
        found = signal.measure(lambda name, at=at, none=none: at if name == metric.name else none, none)  # type: ignore[misc]
        assert found.value[0] == pytest.approx(threshold)
        assert limit.worse == ("below" if metric.worse == "below" else "above")


def test_kinds_agree_with_ranges_and_estimators() -> None:
    for metric in METRICS:
        assert (metric.kind == "count") == (metric.estimator == "count")
        assert metric.kind != "share" or metric.bounds == (0, 1)
        assert metric.kind != "correlation" or metric.bounds == (-1, 1)
        assert metric.bounds[0] <= metric.neutral <= metric.bounds[1]
        assert not metric.bound or metric.error, "a bound is told by its missing standard error"


def test_a_family_shares_its_facts() -> None:
    families = (
        ("share_outside_0.9_1.1", "share_outside_0.8_1.2", "share_outside_0.5_2"),
        ("ess_token", "ess_sequence", "ess_geometric"),
        ("mean_weight_token", "mean_weight_sequence"),
        ("shift_correlation_-2", "shift_correlation_+1"),
    )
    for family in families:
        facts = {(m.kind, m.topic, m.neutral, m.worse, m.bound) for m in (BY_NAME[name] for name in family)}
        assert len(facts) == 1


def test_a_column_of_errors_belongs_to_its_metric() -> None:
    for metric in METRICS:
        assert of_column(f"drift/{metric.name}") is metric and of_column(f"drift/{metric.name}_se") is metric
    assert of_column("lag") is None


@pytest.mark.parametrize(
    ("name", "values", "worst"),
    [
        ("kl_k3", [0.1, None, 0.3, 0.2], (0.3, 2)),
        ("ess_token", [0.9, 0.2, 0.5], (0.2, 1)),
        ("logprob_correlation", [0.9, -0.2, 0.5], (-0.2, 1)),
        ("ppl_ratio", [1.2, 0.5, 1.0], (0.5, 1)),
        ("kl_direct", [0.1, -0.2, 0.2], (-0.2, 1)),
        ("tokens", [10.0, 20.0], (None, None)),
        ("kl_k3", [None, None], (None, None)),
    ],
)
def test_the_worst_step_lies_furthest_on_the_worse_side(
    name: str, values: list[float | None], worst: tuple[float | None, int | None]
) -> None:
    assert worst_step(BY_NAME[name], frame(name, values), "mismatch") == worst


def test_only_a_share_of_all_tokens_has_a_rule_of_three() -> None:
    assert unseen_share(BY_NAME["share_outside_0.5_2"], 300) == 0.01
    assert [unseen_share(BY_NAME[name], 300) for name in ("one_sided_share", "kl_k3", "non_finite")] == [0.0] * 3
    none, unknown = (unseen_share(BY_NAME["share_outside_0.5_2"], size) for size in (0, math.nan))
    assert (none, unknown) == (0.0, 0.0)
