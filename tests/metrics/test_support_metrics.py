"""Numbers from supports: against plain loops over a small vocabulary, and laws of divergences and of their errors."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.drawn_supports import drawn

from ratioscope.metrics.analysis.support_bins import Bins, SupportTokens, bins_of
from ratioscope.metrics.analysis.support_metrics import (
    SUPPORT_METRICS,
    SupportNumber,
    clustered_sums,
    metric_pairs,
    numbers,
)
from ratioscope.metrics.explanation import explain

ROUNDING = 2e-6
"""A mass outside that is below 1e-6 is not told from 0, so bounds hold up to about this."""


def named(support: Bins) -> dict[str, SupportNumber]:
    found = numbers(clustered_sums(metric_pairs(support), support.sequence, support.stands_for))
    return {metric.name: number for metric, number in zip(SUPPORT_METRICS, found, strict=True)}


def bins_by_hand(tokens: SupportTokens, row: int) -> tuple[list[float], list[float]]:
    """(rollout, trainer) of the support and of what lies outside, by loops."""
    q = [math.exp(value) for value in tokens.rollout[row] if math.isfinite(value)]
    p = [math.exp(value) for value in tokens.train[row] if math.isfinite(value)]
    return [*q, max(0.0, 1 - sum(q))], [*p, max(0.0, 1 - sum(p))]


def kl_by_hand(q: list[float], p: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(q, p, strict=True) if a > 1e-12)


@pytest.mark.parametrize("k", [7, 3])
def test_every_number_is_that_of_plain_loops(k: int) -> None:
    tokens = drawn(np.random.default_rng(1), k=k)
    found = named(bins_of(tokens))
    sums = dict.fromkeys([metric.name for metric in SUPPORT_METRICS], 0.0)
    for row in range(len(tokens.sampled)):
        q, p = bins_by_hand(tokens, row)
        x = [math.log(b / a) if a > 1e-12 else 0.0 for a, b in zip(q, p, strict=True)]
        center = sum(b * each for b, each in zip(p, x, strict=True))
        scores = [each - center for each in x]
        ratio = tokens.sampled_train[row] - tokens.sampled_rollout[row]
        sums["support_kl"] += kl_by_hand(q, p)
        sums["support_k3"] += math.exp(ratio) - 1 - ratio
        sums["support_total_variation"] += sum(abs(a - b) for a, b in zip(q, p, strict=True)) / 2
        sums["outside_rollout"] += q[-1]
        sums["outside_trainer"] += p[-1]
        sums["expected_score_rollout"] += sum(a * s for a, s in zip(q[:-1], scores[:-1], strict=True))
        sums["expected_score_trainer"] += sum(b * s for b, s in zip(p[:-1], scores[:-1], strict=True))
        sums["score_drift"] += tokens.advantage[row] * sum(a * s for a, s in zip(q, scores, strict=True))
    sizes = {"score_drift": float(np.abs(tokens.advantage).sum())}
    for name, total in sums.items():
        expected = total / sizes.get(name, len(tokens.sampled))
        assert found[name].value == pytest.approx(expected, rel=1e-9, abs=1e-12), name
        assert (found[name].tokens, found[name].sequences) == (600, 60)


def test_on_the_whole_vocabulary_the_divergence_is_the_sum_and_k3_agrees_within_its_larger_error() -> None:
    tokens = drawn(np.random.default_rng(2), n=6000)
    whole = [
        kl_by_hand(*(np.exp(side[row]).tolist() for side in (tokens.rollout, tokens.train))) for row in range(6000)
    ]
    found = named(bins_of(tokens))
    kl, k3 = found["support_kl"], found["support_k3"]
    assert kl.value == pytest.approx(np.mean(whole), rel=1e-9)
    assert abs(k3.value - kl.value) < 4 * k3.error and k3.error > 1.5 * kl.error
    assert abs(found["expected_score_trainer"].value) < 1e-12, "the trainer expects no score of its own"


@given(st.integers(0, 10_000), st.integers(1, 7), st.floats(0.01, 6.0))
def test_bounds_of_divergences_hold_at_every_token(seed: int, k: int, gap: float) -> None:
    """Total variation within [0, 1], Pinsker, and data processing: fewer tokens in the support never raise a divergence."""
    tokens = drawn(np.random.default_rng(seed), n=30, k=7, gap=gap)
    part = replace(tokens, ids=tokens.ids[:, :k], rollout=tokens.rollout[:, :k], train=tokens.train[:, :k])
    values = [[pair[0] for pair in metric_pairs(bins_of(each))] for each in (part, tokens)]
    (kl, _, variation, *_), (whole, _, whole_variation, *_) = values
    assert (kl >= -1e-12).all() and ((variation >= 0) & (variation <= 1 + 1e-12)).all()
    assert (variation <= np.sqrt(np.maximum(kl, 0) / 2) + 1e-9).all()
    assert (kl <= whole + ROUNDING).all() and (variation <= whole_variation + ROUNDING).all()


@given(st.integers(0, 10_000), st.integers(1, 5))
def test_sums_add_up_over_sets_of_sequences_and_order_does_not_matter(seed: int, parts: int) -> None:
    random = np.random.default_rng(seed)
    support = bins_of(drawn(random, n=60, k=4))
    pairs, group = metric_pairs(support), random.integers(0, parts, 6)[support.sequence]
    split = sum(
        clustered_sums(
            [(a[group == part], n[group == part]) for a, n in pairs],
            support.sequence[group == part],
            support.stands_for[group == part],
        )
        for part in range(parts)
    )
    assert split == pytest.approx(clustered_sums(pairs, support.sequence, support.stands_for), rel=1e-9, abs=1e-12)


def test_errors_are_those_of_repeated_runs() -> None:
    """The mean stated error is the spread over 200 runs of 40 sequences; a spread of 200 has 5% error of its own."""
    runs = [named(bins_of(drawn(np.random.default_rng(seed), n=200, k=4, per=5))) for seed in range(200)]
    for name in ("support_kl", "support_k3", "support_total_variation", "outside_rollout", "score_drift"):
        spread = np.std([run[name].value for run in runs], ddof=1)
        assert np.mean([run[name].error for run in runs]) == pytest.approx(spread, rel=0.2), name


def test_tokens_that_are_not_in_the_support_or_the_loss_are_counted_by_their_reason() -> None:
    tokens = drawn(np.random.default_rng(3), n=60, k=3)
    rollout, train, own = (side.copy() for side in (tokens.rollout, tokens.train, tokens.sampled_train))
    mask = tokens.mask.copy()
    rollout[0], train[1], rollout[2], own[3], mask[4] = np.nan, -np.inf, 0.0, np.nan, False
    own[5] += 0.5
    found = bins_of(replace(tokens, rollout=rollout, train=train, sampled_train=own, mask=mask))
    assert (found.no_support, found.too_much, found.not_finite) == (2, 1, 1)
    assert len(found.drawn) == 60 - 5
    assert found.disagreeing == int(tokens.sampled[5] in tokens.ids[5])


def test_a_repeated_id_counts_once_and_an_id_without_a_side_lies_outside() -> None:
    tokens = drawn(np.random.default_rng(4), n=60, k=3)
    rollout, train = (np.column_stack((side, side[:, :1])) for side in (tokens.rollout, tokens.train))
    ids = np.column_stack((tokens.ids, tokens.ids[:, :1]))
    repeated = bins_of(replace(tokens, ids=ids, rollout=rollout, train=train))
    once = bins_of(tokens)
    assert repeated.q.sum(axis=1) == pytest.approx(1)
    assert all(named(repeated)[name].value == pytest.approx(number.value) for name, number in named(once).items())
    torn = tokens.train.copy()
    torn[:, 2] = np.nan
    fewer = replace(tokens, ids=tokens.ids[:, :2], rollout=tokens.rollout[:, :2], train=tokens.train[:, :2])
    one, other = named(bins_of(replace(tokens, train=torn))), named(bins_of(fewer))
    assert all(one[name].value == pytest.approx(other[name].value) for name in one)


def test_without_advantages_or_usable_tokens_there_is_no_number() -> None:
    tokens = drawn(np.random.default_rng(5), n=60, k=3)
    found = named(bins_of(replace(tokens, advantage=np.full(60, np.nan))))
    assert math.isnan(found["score_drift"].value) and found["score_drift"].tokens == 0
    assert math.isfinite(found["support_kl"].value)
    nothing = named(bins_of(replace(tokens, mask=np.zeros(60, bool))))
    assert all(math.isnan(number.value) and number.tokens == 0 for number in nothing.values())


def test_a_sequence_that_stands_for_three_counts_three_times_in_the_value_and_once_among_the_sequences() -> None:
    tokens = drawn(np.random.default_rng(6), n=60, k=4)
    weighed = named(bins_of(replace(tokens, stands_for=np.where(tokens.sequence == 2, 3.0, 1.0))))
    more = np.concatenate([np.arange(60), *[np.flatnonzero(tokens.sequence == 2)] * 2])
    repeated = named(bins_of(SupportTokens(**{name: value[more] for name, value in vars(tokens).items()})))
    for name, number in weighed.items():
        assert number.value == pytest.approx(repeated[name].value, rel=1e-9, abs=1e-12) and number.sequences == 6


def test_every_number_is_explained_by_its_name_with_its_gap_or_without() -> None:
    for metric in SUPPORT_METRICS:
        assert all(
            fact in explain(f"mismatch/{metric.name}") for fact in (metric.meaning, metric.formula, metric.source)
        )
    assert explain("support_kl").startswith("support_kl\n  title: KL, at least")
