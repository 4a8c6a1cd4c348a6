"""One threshold read from distributions: against the raw weights, against the sums over token rows, and as intervals."""

import math
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from support.frames import distribution
from support.real_runs import records
from support.sizes import examples

from ratioscope.errors import ConfigError
from ratioscope.ingest.statistics.metric_columns import distribution_frame
from ratioscope.metrics.corrections.effect import SUMS, correction_sums, effect_values
from ratioscope.metrics.corrections.threshold import CAPS, FLOORS, RULES, Threshold, ThresholdRule, place, treated
from ratioscope.metrics.corrections.threshold_effect import VALUES, frontier, threshold_effects, whole_effect
from ratioscope.metrics.distribution import LEVELS, Histogram, histogram
from ratioscope.metrics.engines.numpy_engine import statistics

weights = arrays(np.float64, st.integers(1, 40), elements=st.floats(-6, 6))


def oracle(x: Any, threshold: Threshold) -> dict[str, float]:
    """VALUES from the weights themselves, one after the other."""
    kept, removed, clipped = [], 0, 0
    for value in x:
        w = math.exp(value)
        inside = threshold.low <= w < threshold.high
        if threshold.rule == "truncate":
            kept.append(min(max(w, threshold.low), threshold.high))
        else:
            kept.append((w if threshold.rule == "mask" else 1.0) if inside else 0.0)
            removed += not inside
        clipped += not inside and threshold.rule != "reject"
    n, total = len(x), sum(math.exp(value) for value in x)
    squares = sum(v * v for v in kept)
    return {
        "clipped_share": clipped / n,
        "removed_share": removed / n,
        "mass_removed": 1 - sum(kept) / total,
        "ess_before": total**2 / (n * sum(math.exp(2 * value) for value in x)),
        "ess_after": sum(kept) ** 2 / (n * squares) if squares else math.nan,
        "mean_weight": sum(kept) / n,
        "bias": sum(abs(v - math.exp(value)) for v, value in zip(kept, x, strict=True)) / n,
        "variance": squares / n - (sum(kept) / n) ** 2,
    }


@given(weights, st.sampled_from(RULES), st.sampled_from((0.0, *FLOORS)), st.sampled_from((*CAPS, math.inf)))
@examples(150)
def test_at_published_thresholds_the_effect_is_that_of_the_weights(
    x: Any, rule: ThresholdRule, low: float, high: float
) -> None:
    threshold = Threshold(rule, "token", low, high)
    found, wanted = whole_effect(histogram(x), threshold), oracle(x, threshold)
    assert threshold.exact
    for name in VALUES:
        assert found[name].low == pytest.approx(found[name].high, rel=1e-9, abs=1e-9, nan_ok=True), name
        # The bucket around 1 is 2e-9 wide, and what rejection leaves there weighs 1.
        assert found[name].low == pytest.approx(wanted[name], rel=1e-7, abs=1e-8, nan_ok=True), name


@given(weights, st.sampled_from(RULES), st.floats(0, 1), st.floats(1.001, 20))
@examples(200)
def test_in_between_the_interval_holds_the_value(x: Any, rule: ThresholdRule, low: float, high: float) -> None:
    threshold = Threshold(rule, "token", low, high)
    found, wanted = whole_effect(histogram(x), threshold), oracle(x, threshold)
    for name in VALUES:
        if not math.isnan(wanted[name]) and not math.isnan(found[name].low):
            room = 1e-7 * max(1.0, abs(wanted[name]))
            assert found[name].low - room <= wanted[name] <= found[name].high + room, name


def bounds_by_edges(part: Histogram, threshold: Threshold) -> dict[str, tuple[float, float]]:
    """Intervals that use no more of a cut bucket than its edges, its count and, for a mask, its summed weight."""
    w, squares = np.exp(part.log_sum_weights), np.exp(part.log_sum_square_weights)
    bottom, top = np.exp(part.low), np.exp(part.high)
    rounding = 1e-12
    below, above = top <= threshold.low * (1 + rounding), bottom >= threshold.high * (1 - rounding)
    inside = (bottom >= threshold.low * (1 - rounding)) & (top <= threshold.high * (1 + rounding))
    cut = ~below & ~above & ~inside
    total, total_squares = w[inside].sum(), squares[inside].sum()
    least, most = 0.0, w[cut].sum()
    if threshold.rule == "truncate":
        for side, bound in ((below, threshold.low), (above, threshold.high)):
            count = part.counts[side].sum()
            total, total_squares = total + count * bound, total_squares + count * bound**2
        held = [np.clip(end[cut], threshold.low, threshold.high) for end in (bottom, top)]
        least, most = ((part.counts[cut] * end).sum() for end in held)
    flattest = max(bottom[cut].min(initial=np.inf), threshold.low) if cut.any() else 0.0
    steepest = min(top[cut].max(initial=0.0), threshold.high) if cut.any() else 0.0

    def ess(added: float, slope: float) -> float:
        return float((total + added) ** 2 / (part.counts.sum() * (total_squares + slope * added)))

    stationary = total - 2 * total_squares / steepest if steepest > 0 else least
    return {
        "mass_removed": (1 - (total + most) / w.sum(), 1 - (total + least) / w.sum()),
        "ess_after": (
            ess(float(np.clip(stationary, least, most)), steepest),
            max(ess(least, flattest), ess(most, flattest)),
        ),
    }


@pytest.mark.parametrize("how", ["truncate", "mask"])
def test_intervals_are_no_wider_than_those_of_the_edges_alone(how: Any) -> None:
    part = histogram(np.random.default_rng(2).normal(0, 0.7, 3000))
    for high in (1.7, 2, 2.2, 7):
        threshold = Threshold(how, "token", 0.55, high)
        found, wide = whole_effect(part, threshold), bounds_by_edges(part, threshold)
        for name, (low, most) in wide.items():
            assert low - 1e-12 <= found[name].low <= found[name].high <= most + 1e-12


@pytest.mark.parametrize("rule", RULES)
def test_token_thresholds_have_the_effect_that_token_rows_tell(rule: ThresholdRule) -> None:
    table, threshold = records("trl_vllm_stale4"), Threshold(rule, "token", 0.5, 2.0)
    frame = pl.DataFrame(statistics(table))
    found = threshold_effects(distribution_frame(frame, "token", "mismatch"), threshold)
    sums = correction_sums(table, (threshold.correction(),))
    wanted = effect_values({name: sums[name].to_numpy() for name in SUMS})
    assert (
        found["step"].to_list() == sums["step"].to_pylist() and found["weights"].to_list() == sums["tokens"].to_pylist()
    )
    for name in set(VALUES) - {"mass_removed"}:
        np.testing.assert_allclose(found[name].to_numpy(), wanted[name], rtol=1e-6, atol=1e-9, err_msg=name)


def test_each_step_is_its_own_whole() -> None:
    frame, threshold = distribution(range(6), seed=3), Threshold("truncate", "token", 0.0, 1.05)
    steps = threshold_effects(frame, threshold)
    part = frame.filter(pl.col("step") == 4)
    alone = threshold_effects(part, threshold)
    assert steps.filter(pl.col("step") == 4).rows() == alone.rows() and len(steps) == 6
    assert threshold_effects(frame.clear(), threshold).is_empty()


def test_weights_beyond_all_floats_are_told_as_far_as_they_can_be() -> None:
    part = histogram([800.0, 900.0, 1.0, -2000.0])
    found = whole_effect(part, Threshold("truncate", "sequence", 0.0, 2.0))
    assert found["mean_weight"].low == pytest.approx((2 + 2 + 2 + 0) / 4)
    assert found["ess_after"].low == pytest.approx(36 / (4 * 12)) and found["mass_removed"].low == 1.0
    assert found["bias"].low == math.inf and found["removed_share"].low == 0.0
    nothing = whole_effect(histogram([-math.inf, -math.inf]), Threshold("truncate", "token", 0.0, 2.0))
    assert math.isnan(nothing["ess_after"].low) and nothing["removed_share"].low == 1.0
    assert math.isnan(whole_effect(histogram([]), Threshold("mask"))["bias"].low)


def test_the_frontier_trades_what_is_removed_for_what_is_left() -> None:
    part = histogram(np.random.default_rng(0).normal(0, 0.5, 5000))
    curve = frontier(part, "token")
    truncated = curve.filter(pl.col("rule") == "truncate").sort("cap")
    assert truncated["cap"].to_list() == list(CAPS)
    assert truncated["bias"].is_sorted(descending=True) and truncated["ess_after"].is_sorted(descending=True)
    assert len(curve) == 2 * len(CAPS) and frontier(part, "token", low=2.0)["cap"].min() == 2.5


@given(weights, st.sampled_from(RULES), st.sampled_from(FLOORS), st.sampled_from(CAPS))
@examples(60)
def test_what_is_left_is_counted_where_it_lies(x: Any, rule: ThresholdRule, low: float, high: float) -> None:
    left, removed = treated(histogram(x), Threshold(rule, "token", low, high))
    w = np.exp(x)
    assert left.counts.sum() + removed == len(x)
    assert removed == (0 if rule == "truncate" else ((w < low) | (w >= high)).sum())
    if len(left.counts):
        assert np.exp(left.low).min() >= low * (1 - 1e-9) or rule == "reject"
        assert np.exp(left.low).max() <= high * (1 + 1e-9)


def test_names_say_what_is_bound_and_empty_bounds_are_refused() -> None:
    said = [
        Threshold("truncate", high=2.0),
        Threshold("mask", "sequence", 0.5, 5.0),
        Threshold("reject", "geometric", 0.999),
    ]
    assert [each.name for each in said] == [
        "truncate token at 2", "mask sequence outside 0.5–5", "reject geometric below 0.999"
    ]  # fmt: skip
    assert place(2.0)[1] is False and place(2.2)[1] is True and not Threshold("mask", high=2.2).exact
    for low, high in ((2.0, 1.0), (-1.0, 2.0), (math.nan, 2.0)):
        with pytest.raises(ConfigError, match="0 <= low < high"):
            Threshold("mask", low=low, high=high)
    assert {each.correction().gap for each in said} == {"mismatch"}
    assert all(Threshold("reject", level, 0.5, 2.0).correction("total").gap == "total" for level in LEVELS)
