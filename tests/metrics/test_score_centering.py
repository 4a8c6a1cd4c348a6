"""Score centering against the exact gradient of a softmax policy, and against the sum that trainers compute."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.dialect_golden import read_json
from support.drawn_supports import drawn, log_softmax

from ratioscope.metrics.analysis.score_centering import (
    CENTERINGS,
    Centering,
    CenteringEffect,
    bias_left,
    effects,
    support_sums,
)
from ratioscope.metrics.analysis.support_bins import Bins, SupportTokens, bins_of
from ratioscope.metrics.analysis.support_metrics import score

STEP = 1e-6
VECTORS = read_json("score_centering", "vectors.json")
RELATIVE = {"head of 4": 1e-4, "far apart": 1e-4, "whole vocabulary": 1e-4, "bfloat16": 1e-2}
"""Case of the vectors -> tolerance. Probabilities of bfloat16 log-probs do not sum to 1; the bins do, the trainers' do not."""
UNBOUNDED = Centering("every weight", is_centered=False, outside="clamp")


def weight_by_hand(centering: Centering, ratio: float) -> float:
    if centering.outside == "one":
        return 1.0
    if centering.outside == "clamp":
        return min(max(ratio, centering.low), centering.high)
    return ratio if centering.low <= ratio <= centering.high else 0.0


def scores(logits: np.ndarray, direction: np.ndarray) -> np.ndarray:
    """d log p(v) / d e for every token v of a softmax policy whose logits move by e * direction: finite differences."""
    higher, lower = (log_softmax((logits + sign * STEP * direction)[None])[0] for sign in (1, -1))
    return np.asarray((higher - lower) / (2 * STEP))


def of_one_prefix(
    random: np.random.Generator, advantages: np.ndarray, *, n: int = 40_000, gap: float = 0.6
) -> tuple[SupportTokens, np.ndarray, np.ndarray, np.ndarray]:
    """(n tokens drawn at one prefix, trainer's logits, rollout's and trainer's probabilities). advantages: of each next token."""
    size = len(advantages)
    logits = random.normal(0, 1, size)
    train = log_softmax(logits[None])[0]
    rollout = log_softmax((logits + random.normal(0, gap, size))[None])[0]
    sampled = random.choice(size, n, p=np.exp(rollout))
    ids, whole = np.tile(np.arange(size), (n, 1)), np.ones((n, 1))
    tokens = SupportTokens(
        ids, whole * rollout, whole * train, sampled, rollout[sampled], train[sampled], advantages[sampled],
        np.ones(n, bool), np.arange(n), np.ones(n),
    )  # fmt: skip
    return tokens, logits, np.exp(rollout), np.exp(train)


def found_for(tokens: SupportTokens) -> dict[str, CenteringEffect]:
    return {effect.centering.name: effect for effect in effects(support_sums(bins_of(tokens)))}


def exact_left(centering: Centering, advantages: np.ndarray, logits: np.ndarray, q: np.ndarray, p: np.ndarray) -> float:
    """The bias by enumeration of the next token: the expected update less the exact gradient, over the mean |A|."""
    s = scores(logits, np.log(p / q))
    weights = np.array([weight_by_hand(centering, b / a) for a, b in zip(q, p, strict=True)])
    update = sum(q * advantages * weights * s)
    if centering.is_centered:
        update -= sum(q * advantages) * sum(q * weights * s)
    return float((update - sum(p * advantages * s)) / sum(q * np.abs(advantages)))


@pytest.mark.parametrize("seed", range(4))
def test_the_bias_left_by_each_correction_is_that_of_the_exact_gradient(seed: int) -> None:
    random = np.random.default_rng(seed)
    advantages = random.normal(0.7, 1, 6)
    tokens, *policy = of_one_prefix(random, advantages)
    for name, effect in found_for(tokens).items():
        expected = exact_left(effect.centering, advantages, *policy)
        assert abs(effect.left.value - expected) < 4 * effect.left.error + 1e-9, name


@pytest.mark.parametrize("advantage", [1.5, -0.8])
def test_an_advantage_that_all_next_tokens_share_is_pure_bias_and_centering_removes_it(advantage: float) -> None:
    """The true gradient is 0: the baseline of the prefix is off by a constant. The drift is its size, with its sign."""
    tokens, logits, q, p = of_one_prefix(np.random.default_rng(7), np.full(6, advantage))
    found = found_for(tokens)
    raw, centered = found["no centering, no weights"], found["score centering, no weights"]
    drift = -math.copysign(sum((q - p) * np.log(q / p)), advantage)
    assert abs(raw.left.value) > 20 * raw.left.error and raw.left.value == pytest.approx(drift, abs=4 * raw.left.error)
    assert abs(centered.left.value) < 4 * centered.left.error
    assert centered.removed.value == pytest.approx(1, abs=4 * centered.removed.error) and not centered.because


def test_centering_leaves_a_true_gradient_alone() -> None:
    """Sides that agree have no bias: what is added has mean 0, so the gradient along any direction stays within its error."""
    advantages = np.array([1.0, -2.0, 0.5, 3.0, 0.0, -1.0])
    tokens, logits, _, p = of_one_prefix(np.random.default_rng(8), advantages, gap=0.0)
    direction = np.array([0.3, -1.0, 0.7, 0.2, -0.4, 0.9])
    own = advantages[tokens.sampled] * scores(logits, direction)[tokens.sampled]
    exact = sum(p * advantages * scores(logits, direction))
    subtracted = advantages[tokens.sampled] * sum(p * scores(logits, direction))
    assert np.abs(subtracted).max() < 1e-9
    assert abs((own - subtracted).mean() - exact) < 4 * own.std() / math.sqrt(len(own))
    support = bins_of(tokens)
    assert all(np.abs(bias_left(each, support)).max() < 1e-9 for each in CENTERINGS)


@given(st.integers(0, 10_000))
def test_noise_that_does_not_know_the_advantage_has_no_bias_beyond_its_error(seed: int) -> None:
    """Advantages of either sign with the same chance, one per sequence: 5 errors, a chance of 1 in a million per example."""
    random = np.random.default_rng(seed)
    tokens = drawn(random, n=600, k=5, gap=0.1, per=5)
    signs = random.permutation([1.0, -1.0] * 60)[tokens.sequence]
    for effect in found_for(replace(tokens, advantage=signs)).values():
        assert abs(effect.left.value) < 5 * effect.left.error + 1e-12, effect.centering.name


@given(st.integers(0, 10_000), st.sampled_from(CENTERINGS), st.integers(1, 5))
def test_what_is_subtracted_is_the_sum_over_the_head_that_trainers_compute(
    seed: int, centering: Centering, k: int
) -> None:
    """Their coefficient is q f(p / q) - r f(1 / r) p with r the ratio of the masses outside, times the score of the token."""
    tokens = drawn(np.random.default_rng(seed), n=20, k=k, gap=0.5)
    support = bins_of(tokens)
    bare = replace(centering, is_centered=False)
    subtracted = bias_left(bare, support) - bias_left(replace(centering, is_centered=True), support)
    for row in range(20):
        q, p = np.exp(tokens.rollout[row]), np.exp(tokens.train[row])
        q_rest, p_rest = 1 - q.sum(), 1 - p.sum()
        x, x_rest = np.log(p / q), math.log(p_rest / q_rest)
        center = sum(p * x) + p_rest * x_rest
        r = q_rest / p_rest
        tail = r * weight_by_hand(centering, 1 / r)
        head = [a * weight_by_hand(centering, b / a) - tail * b for a, b in zip(q, p, strict=True)]
        expected = tokens.advantage[row] * sum(head * (x - center))
        assert subtracted[row] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def vector_bins(given: dict[str, list[float]]) -> Bins:
    """The bins of the inputs of the vectors. Each row is a sequence of one token, which lies outside the support."""
    columns = {name: np.array(values) for name, values in given.items()}
    n, k = columns["trainer"].shape
    return bins_of(
        SupportTokens(
            np.tile(np.arange(k), (n, 1)), columns["rollout"], columns["trainer"], np.full(n, k),
            columns["rollout_sampled"], columns["trainer_sampled"], np.ones(n), np.ones(n, bool), np.arange(n), np.ones(n),
        )
    )  # fmt: skip


@pytest.mark.parametrize("case", VECTORS["inputs"])
@pytest.mark.parametrize("trainer", VECTORS["sources"])
def test_what_is_subtracted_is_what_the_own_code_of_a_trainer_subtracts(trainer: str, case: str) -> None:
    """Vectors of tests/upstream/score_centering_vectors.py: the coefficient of each log-prob of the head, times its score."""
    bins = vector_bins(VECTORS["inputs"][case])
    rows = [row for row in VECTORS["vectors"] if (row["trainer"], row["case"]) == (trainer, case)]
    assert rows or trainer == "prime_rl"
    for row in rows:
        centering = next(each for each in CENTERINGS if each.is_centered and each.outside == row["mode"])
        subtracted = bias_left(replace(centering, is_centered=False), bins) - bias_left(centering, bins)
        wanted = (np.array(row["head"]) * score(bins)[:, :-1]).sum(1)
        assert subtracted == pytest.approx(wanted, rel=RELATIVE[case], abs=1e-6), row["mode"]
        if "sampled" in row:
            assert centering.weight(np.exp(bins.log_ratio)) == pytest.approx(np.array(row["sampled"]), rel=1e-5)


def test_whole_importance_weights_leave_no_bias_and_centering_subtracts_nothing_from_them() -> None:
    support = bins_of(drawn(np.random.default_rng(9), k=4, gap=0.5))
    assert np.abs(bias_left(UNBOUNDED, support)).max() < 1e-12
    assert np.abs(bias_left(replace(UNBOUNDED, is_centered=True), support)).max() < 1e-12


def test_what_is_removed_is_stated_only_where_the_bias_is_two_errors_from_0_and_an_advantage_is_known() -> None:
    said, tokens = [], drawn(np.random.default_rng(11), n=200, k=5, gap=0.05)
    for seed in range(12):
        tokens = drawn(np.random.default_rng(seed), n=200, k=5, gap=0.05)
        found = found_for(tokens)
        raw, centered = found["no centering, no weights"].left, found["score centering, no weights"]
        said.append(centered.because)
        assert (centered.because == "") is (abs(raw.value) >= 2 * raw.error)
    assert set(said) == {"", "the bias without a correction is within its error"}
    alone = found_for(replace(tokens, sequence=np.zeros(200, np.int64)))["score centering, no weights"]
    assert alone.because == "an error needs two sequences"
    bare = found_for(replace(tokens, advantage=np.full(200, np.nan)))["score centering, no weights"]
    assert bare.because == "no token with a support has an advantage" and math.isnan(bare.left.value)


@given(st.integers(0, 10_000), st.data())
def test_no_value_on_record_raises_or_warns_and_each_token_counts_or_has_its_reason(
    seed: int, data: st.DataObject
) -> None:
    """Warnings are errors here. Log-probs, advantages and ids of any value at any place."""
    tokens = drawn(np.random.default_rng(seed), n=12, k=3, per=4)
    hostile = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, 5e4, -5e4, 1e300, -1e300, 3e-320])
    columns = {
        name: getattr(tokens, name).copy()
        for name in ("rollout", "train", "sampled_rollout", "sampled_train", "advantage")
    }
    for column in columns.values():
        for place in data.draw(st.lists(st.integers(0, column.size - 1), max_size=4)):
            column.flat[place] = data.draw(hostile)
    ids = tokens.ids.copy()
    ids.flat[data.draw(st.integers(0, ids.size - 1))] = data.draw(st.sampled_from([-1, -(2**63), 2**63 - 1, 0]))
    bins = bins_of(replace(tokens, ids=ids, **columns))
    assert len(bins.drawn) + bins.no_support + bins.too_much + bins.not_finite == 12
    for effect in effects(support_sums(bins)):
        assert math.isfinite(effect.left.value) or effect.because
    empty = replace(tokens, ids=ids[:, :0], rollout=tokens.rollout[:, :0], train=tokens.train[:, :0])
    assert bins_of(empty).no_support == 12
