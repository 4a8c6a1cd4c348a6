"""Tests of the records' honesty raise false alarms at their nominal rate, and say so when they cannot test."""

import math

import numpy as np
import numpy.typing as npt
import pytest
from support.ragged import measured, table

from ratioscope.metrics.definitions.tail import K, khat_threshold, tail_lengths, tail_shapes

Floats = npt.NDArray[np.float64]

VOCABULARY = 40


def softmax(logits: Floats) -> Floats:
    weights = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True))


def run(seed: int, *, noise: float, sequences: int = 150, length: int = 12, keep: float = 1.0) -> dict[str, float]:
    """Metrics of tokens honestly sampled from `rollout`, whose logits `old` sees with noise.

    keep: only this share of the likeliest tokens is sampled from (top-p), while rollout reports the whole distribution.
    """
    random = np.random.default_rng(seed)
    logits = random.normal(0, 2, (sequences * length, VOCABULARY))
    rollout, old = softmax(logits), softmax(logits + random.normal(0, noise, logits.shape))
    sampled = rollout
    if keep < 1:
        order = np.argsort(-rollout, axis=1)
        before = np.cumsum(np.take_along_axis(rollout, order, 1), axis=1) - np.take_along_axis(rollout, order, 1)
        inside = np.empty_like(before, dtype=bool)
        np.put_along_axis(inside, order, before < keep, 1)
        sampled = np.where(inside, rollout, 0)
        sampled /= sampled.sum(axis=1, keepdims=True)
    token = (sampled.cumsum(axis=1) < random.random((len(sampled), 1))).sum(axis=1).clip(0, VOCABULARY - 1)
    at = np.arange(len(token)), token
    columns = {
        "rollout_logprobs": np.log(rollout[at]),
        "old_logprobs": np.log(old[at]),
        "entropy": -(old * np.log(old)).sum(axis=1),
    }
    rows = [{name: c[i : i + length].tolist() for name, c in columns.items()} for i in range(0, len(token), length)]
    return measured(table(rows))


def test_false_alarms_of_an_honest_run_come_at_their_nominal_rate() -> None:
    runs = [run(seed, noise=0.1) for seed in range(120)]
    for name in ("mean_weight_token_z", "mean_weight_sequence_z"):
        z = np.array([row[f"mismatch/{name}"] for row in runs])
        z = z[~np.isnan(z)]
        assert len(z) > 100
        # Of a standard normal, 5% lie beyond 1.96; 120 runs put the count within 12 of 6 but once in 10 000.
        assert (np.abs(z) > 1.96).sum() <= 15 and np.abs(z).max() < 4.5
        assert 0.8 < z.std() < 1.25


def test_a_heavier_gap_leaves_the_mean_weight_test_silent_or_at_its_rate() -> None:
    z = np.array([run(seed, noise=1.0)["mismatch/mean_weight_token_z"] for seed in range(60)])
    known = z[~np.isnan(z)]
    assert (np.abs(known) > 4).sum() == 0


def test_silent_top_p_is_seen_by_the_surprisal_gap_and_honest_sampling_is_not() -> None:
    honest = np.array([run(seed, noise=0.0)["mismatch/surprisal_gap_z"] for seed in range(60)])
    assert np.abs(honest).max() < 4 and 0.75 < honest.std() < 1.3
    cut = run(1, noise=0.0, keep=0.9)
    assert cut["mismatch/kl_k3"] == 0.0
    assert cut["mismatch/surprisal_gap_z"] < -6


@pytest.mark.parametrize("shape", [0.1, 0.5, 0.9])
def test_khat_finds_the_shape_of_a_pareto_tail(shape: float) -> None:
    random = np.random.default_rng(1)
    n = 20000
    weights = 1 + ((1 - random.random((20, n))) ** -shape - 1) / shape
    largest = np.log(np.sort(weights, axis=1)[:, -K:])
    found = tail_shapes(list(largest), np.full(20, float(n)))
    # 255 points leave a standard error of about (1 + k) / sqrt(255) to each of 20 fits.
    assert found.mean() == pytest.approx(shape, abs=4 * (1 + shape) / np.sqrt(255 * 20) + 0.02)


@pytest.mark.parametrize("lowest", [-1.0, -230.0])
def test_khat_is_the_one_of_a_logarithm_for_each_number(lowest: float) -> None:
    """At -230, products of the numbers are beyond the largest float64."""
    logs = np.sort(np.concatenate([np.full(100, lowest), np.random.default_rng(4).normal(0, 0.2, K - 100)]))
    logs[:100] += np.linspace(-1, 0, 100)
    excesses = np.exp(logs[1:] - logs[-1]) - np.exp(logs[0] - logs[-1])
    points, quarter = 30 + int(np.sqrt(K - 1)), excesses[int((K - 1) / 4 + 0.5) - 1]
    grid = [1 / excesses[-1] + (1 - math.sqrt(points / (i - 0.5))) / (3 * quarter) for i in range(1, points + 1)]
    shape = [math.fsum(math.log1p(-b * x) for x in excesses) / (K - 1) for b in grid]
    height = [(K - 1) * (math.log(-b / k) - k - 1) for b, k in zip(grid, shape, strict=True)]
    weight = [math.exp(each - max(height)) for each in height]
    location = math.fsum(b * w for b, w in zip(grid, weight, strict=True)) / math.fsum(weight)
    k = math.fsum(math.log1p(-location * x) for x in excesses) / (K - 1)
    assert tail_shapes([logs], np.array([1e6])) == pytest.approx((k * (K - 1) + 5) / (K + 9), rel=1e-9)


def test_light_tails_are_trusted_and_cauchy_like_ones_are_not() -> None:
    random = np.random.default_rng(2)
    light, heavy = random.normal(0, 0.1, 4000), random.exponential(1.5, 4000)
    shapes = tail_shapes([np.sort(light)[-K:], np.sort(heavy)[-K:]], np.array([4000.0, 4000.0]))
    assert shapes[0] < khat_threshold(np.array([4000.0]))[0] < shapes[1]


def test_small_or_constant_tails_give_no_shape() -> None:
    random = np.random.default_rng(3)
    few = random.normal(0, 1, 124)
    shapes = tail_shapes([few, np.zeros(K), None], np.array([124.0, 4000.0, 4000.0]))
    assert np.isnan(shapes[0]) and shapes[1] == -np.inf and np.isnan(shapes[2])


def test_the_tail_is_as_long_as_published_and_never_longer_than_what_is_kept() -> None:
    sizes = np.asarray([100, 125, 225, 2500, 7225, 1e6])
    assert tail_lengths(sizes).tolist() == [20, 25, 45, 150, 255, 255]


def test_the_threshold_falls_with_the_sample() -> None:
    np.testing.assert_allclose(khat_threshold(np.array([1e2, 1e3, 2200.0, 1e6])), [0.5, 2 / 3, 0.7, 0.7], rtol=1e-3)
