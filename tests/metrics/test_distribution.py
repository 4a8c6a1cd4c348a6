"""Distributions: what is exact at the published thresholds, and intervals that hold in between."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from support.histograms import from_row
from support.ragged import sampled_rows, stats, table
from support.sizes import examples as at_most

from ratioscope.metrics import distribution
from ratioscope.metrics.corrections.threshold import Threshold, ThresholdRule
from ratioscope.metrics.corrections.threshold_effect import whole_effect
from ratioscope.metrics.definitions.tail import K
from ratioscope.metrics.distribution import (
    EDGES,
    THRESHOLDS,
    Histogram,
    Interval,
    bucket_of,
    histogram,
    median_size,
    share_beyond,
    summed_weights,
)
from ratioscope.metrics.engines.loops import LogWeights
from ratioscope.metrics.engines.spread import largest_of_each
from ratioscope.metrics.merging import merge

examples = at_most(100)
RATIOS = st.lists(st.floats(-12, 12), min_size=1, max_size=30).map(lambda x: np.array(x))
BOUND = st.sampled_from(THRESHOLDS)
ANYWHERE = st.floats(1.0, 100.0)

Ratios = npt.NDArray[np.float64]


def clipped_share(part: Histogram, *, low: float = 0.0, high: float = math.inf) -> Interval:
    return whole_effect(part, Threshold("mask", "token", low, high))["clipped_share"]


def mass_removed(
    part: Histogram, *, low: float = 0.0, high: float = math.inf, how: ThresholdRule = "truncate"
) -> Interval:
    return whole_effect(part, Threshold(how, "token", low, high))["mass_removed"]


def ess_after(
    part: Histogram, *, low: float = 0.0, high: float = math.inf, how: ThresholdRule = "truncate"
) -> Interval:
    return whole_effect(part, Threshold(how, "token", low, high))["ess_after"]


def treated(x: Ratios, low: float, high: float, how: str) -> Ratios:
    w = np.exp(x)
    return np.clip(w, low, high) if how == "truncate" else np.where((w >= low) & (w < high), w, 0.0)


def test_the_edges_ascend_and_hold_every_threshold() -> None:
    assert (np.diff(EDGES) > 0).all()
    for threshold in THRESHOLDS:
        assert np.isclose(EDGES, math.log(threshold), rtol=1e-14, atol=0).any(), threshold
    for published in (
        0.5,
        0.8,
        0.9,
        0.95,
        0.999,
        0.9999,
        1.0001,
        1.001,
        1.002,
        1.05,
        1.1,
        1.2,
        1.28,
        1.5,
        2,
        3,
        4,
        5,
        8,
        10,
        20,
        100,
    ):
        assert published in THRESHOLDS


def test_equal_policies_lie_inside_a_bucket() -> None:
    assert bucket_of(0.0) == bucket_of(1e-12) == bucket_of(-1e-12)


def test_weights_of_zero_lie_in_the_first_bucket() -> None:
    part = histogram([-np.inf, -np.inf, 0.0])
    assert part.buckets[0] == 0 and part.counts[0] == 2
    assert part.log_sum_weights[0] == -np.inf
    assert mass_removed(part, low=0.5, how="mask").high == pytest.approx(0.0)


@examples
@given(
    x=RATIOS,
    low=st.sampled_from([0.0, 0.2, 0.5, 0.9]),
    high=BOUND.filter(lambda c: c > 1),
    how=st.sampled_from(["truncate", "mask"]),
)
def test_at_published_thresholds_everything_is_exact(x: Ratios, low: float, high: float, how: ThresholdRule) -> None:
    part = histogram(x)
    w, after = np.exp(x), treated(x, low, high, how)
    share = clipped_share(part, low=low, high=high)
    assert share.exact and share.low == pytest.approx(np.mean((w < low) | (w >= high)))
    lost = mass_removed(part, low=low, high=high, how=how)
    assert lost.low == pytest.approx(1 - after.sum() / w.sum(), rel=1e-9, abs=1e-9) == lost.high
    ess = ess_after(part, low=low, high=high, how=how)
    wanted = after.sum() ** 2 / (len(x) * (after**2).sum()) if after.any() else math.nan
    assert ess.low == pytest.approx(wanted, rel=1e-9, nan_ok=True) and ess.high == pytest.approx(
        wanted, rel=1e-9, nan_ok=True
    )


@examples
@given(x=RATIOS, low=st.floats(0.0, 1.0), high=ANYWHERE, how=st.sampled_from(["truncate", "mask"]))
def test_between_thresholds_the_interval_holds_the_truth(
    x: Ratios, low: float, high: float, how: ThresholdRule
) -> None:
    assume(low < high)  # empty bounds are refused
    part = histogram(x)
    w, after = np.exp(x), treated(x, low, high, how)
    for interval, truth in (
        (clipped_share(part, low=low, high=high), np.mean((w < low) | (w >= high))),
        (mass_removed(part, low=low, high=high, how=how), 1 - after.sum() / w.sum()),
    ):
        assert interval.low - 1e-9 <= truth <= interval.high + 1e-9
    if after.any():
        ess = ess_after(part, low=low, high=high, how=how)
        truth = after.sum() ** 2 / (len(x) * (after**2).sum())
        # Where all that is left may lie in a cut bucket, nothing bounds it from below.
        assert math.isnan(ess.low) or ess.low <= truth * (1 + 1e-9)
        assert math.isnan(ess.high) or truth <= ess.high * (1 + 1e-9)


@examples
@given(x=RATIOS, q=st.floats(0.01, 1.0))
def test_a_quantile_lies_in_the_bucket_that_is_named(x: Ratios, q: float) -> None:
    interval = distribution.quantile(histogram(x), q)
    truth = np.sort(x)[max(math.ceil(q * len(x) - 1e-9) - 1, 0)]
    assert interval.low <= truth <= interval.high


def test_sequence_weights_far_beyond_float_range_keep_their_ess() -> None:
    part = histogram([900.0, 900.0, 0.0])
    assert ess_after(part).low == pytest.approx(2 / 3)
    assert ess_after(part, high=2.0).low == pytest.approx((2 + 2 + 1) ** 2 / (3 * (4 + 4 + 1)))


def test_the_engine_keeps_the_histogram_of_every_level() -> None:
    rows = sampled_rows(3, sequences=30, longest=20)
    row = stats(table(rows)).filter(gap="mismatch", slice="all").row(0, named=True)
    ratios = [
        (np.float32(row["old_logprobs"]).astype(float) - np.float32(row["rollout_logprobs"]).astype(float))[row["mask"]]
        for row in rows
    ]
    ratios = [x for x in ratios if len(x)]
    of_level = {
        "token": np.concatenate(ratios),
        "sequence": np.array([x.sum() for x in ratios]),
        "geometric": np.array([x.mean() for x in ratios]),
    }
    for level in distribution.LEVELS:
        ours, theirs = from_row(row, level), histogram(of_level[level])
        assert ours.buckets.tolist() == theirs.buckets.tolist()
        assert ours.counts.tolist() == theirs.counts.tolist()
        np.testing.assert_allclose(ours.log_sum_weights, theirs.log_sum_weights, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(ours.log_sum_square_weights, theirs.log_sum_square_weights, rtol=1e-9, atol=1e-9)


def test_without_treatment_the_histogram_and_the_sums_agree_on_ess() -> None:
    merged = merge(
        stats(table(sampled_rows(3, sequences=30, longest=20))).filter(gap="mismatch", slice="all"), ("gap",)
    )
    row = merged.row(0, named=True)
    ess = ess_after(from_row(row))
    assert ess.low == pytest.approx(row["sum_weight"] ** 2 / row["tokens"] / row["sum_square_weight"], rel=1e-12)


def test_an_empty_histogram_says_nothing() -> None:
    part = histogram([])
    assert math.isnan(clipped_share(part, high=2).low) and math.isnan(ess_after(part).low)
    assert math.isnan(mass_removed(part).low) and math.isnan(distribution.quantile(part, 0.5).low)


@examples
@given(x=RATIOS)
def test_the_share_beyond_an_edge_is_that_of_the_log_ratios(x: Ratios) -> None:
    part, edges, w = histogram(x), EDGES[:: len(EDGES) // 12], np.exp(x)
    beyond = [x < edge if edge < 0 else x >= edge for edge in edges]
    assert share_beyond(part, part.counts, edges) == pytest.approx([flags.mean() for flags in beyond])
    masses = share_beyond(part, summed_weights(part), edges)
    assert masses == pytest.approx([w[flags].sum() / w.sum() for flags in beyond], rel=1e-9, abs=1e-12)


def test_weights_that_are_all_zero_have_no_share_beyond_anything() -> None:
    part = histogram([-np.inf, -np.inf])
    assert summed_weights(part).tolist() == [0.0]
    assert share_beyond(part, summed_weights(part), EDGES[:2]).tolist() == [0.0, 0.0]


@examples
@given(x=RATIOS)
def test_the_median_size_is_that_of_the_lower_edges(x: Ratios) -> None:
    part = histogram(x)
    edges = np.repeat(np.where(part.buckets == 0, EDGES[0], EDGES[part.buckets - 1]), part.counts)
    assert median_size(part.buckets, part.counts) == (np.sort(np.abs(edges))[(len(x) - 1) // 2], np.abs(edges).max())


@pytest.mark.parametrize("size", [255, 256, 257, 8192, 8193, 50_000])
def test_the_largest_values_are_found_wherever_they_stand(size: int) -> None:
    drawn = np.random.default_rng(size).normal(size=size)
    for values in (drawn, np.sort(drawn), -np.sort(drawn), np.round(drawn, 1), np.full(size, -np.inf)):
        found = largest_of_each(np.zeros(size, np.int64), values)
        assert len(set(found.tolist())) == min(size, K)
        np.testing.assert_array_equal(np.sort(values[found]), np.sort(values)[-K:])


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_log_weights_above_a_limit_are_those_of_float64(kind: type) -> None:
    random = np.random.default_rng(0)
    weights = LogWeights(*(-random.exponential(size=(2, 2000)).astype(kind)))
    every = weights.later.astype(np.float64) - weights.earlier
    np.testing.assert_array_equal(weights.at(slice(None)), every)
    for least in every[:300]:
        for limit in (least, np.nextafter(least, -np.inf), np.nextafter(least, np.inf)):
            np.testing.assert_array_equal(weights.above(float(limit)), np.flatnonzero(every > limit))
