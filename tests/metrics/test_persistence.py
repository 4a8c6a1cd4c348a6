"""A persistent part is told from noise: false positives at their stated rate, also of steps that are alike; a bias is found."""

import math

import numpy as np
import pytest
from scipy import stats  # type: ignore[import-untyped]  # it ships no types

from ratioscope.metrics.analysis.persistence import CHANCE, LEAST_STEPS, accumulated, persistence


def noise(random: np.random.Generator, steps: int, correlation: float) -> np.ndarray:
    """A series of mean 0 and variance 1 whose neighbours correlate so, begun in its steady state."""
    drawn, series = random.normal(size=steps), np.empty(steps)
    series[0] = drawn[0]
    for at in range(1, steps):
        series[at] = correlation * series[at - 1] + math.sqrt(1 - correlation**2) * drawn[at]
    return series


@pytest.mark.parametrize("steps", [20, 40, 200])
@pytest.mark.parametrize(("correlation", "most"), [(0.0, 0.017), (0.6, 0.028), (0.8, 0.045), (0.9, 0.12)])
def test_pure_noise_is_called_persistent_at_the_stated_rate(steps: int, correlation: float, most: float) -> None:
    """2,000 runs: 1% of independent steps, 2%, 4% and 10% at most of correlated ones; each bound has some 3 sd above."""
    random = np.random.default_rng([steps, int(10 * correlation)])
    found = [persistence(noise(random, steps, correlation)) for _ in range(2000)]
    assert sum(one is not None and one.is_persistent for one in found) / len(found) <= most


@pytest.mark.parametrize("steps", [20, 60])
@pytest.mark.parametrize(
    ("shape", "most"),
    [("heavy", 0.017), ("skewed", 0.037), ("mostly 0", 0.017), ("growing", 0.017), ("period of 2", 0.017)],
)
def test_noise_of_another_shape_is_no_bias_either(steps: int, shape: str, most: float) -> None:
    """2,000 runs. Skewed: a log-normal step, as where few tokens carry it; then the rate is up to three times the stated one."""
    random = np.random.default_rng([steps, len(shape)])
    found = [persistence(_shaped(random, steps, shape)) for _ in range(2000)]
    assert sum(one is not None and one.is_persistent for one in found) / len(found) <= most


def _shaped(random: np.random.Generator, steps: int, shape: str) -> np.ndarray:
    drawn = random.normal(size=steps)
    if shape == "heavy":
        return np.asarray(random.standard_t(3, steps))
    if shape == "skewed":
        return np.asarray(np.exp(drawn) - math.exp(0.5))
    if shape == "mostly 0":
        return drawn * (random.random(steps) < 0.1)
    if shape == "growing":
        return np.asarray(drawn * np.geomspace(0.01, 1, steps))
    return np.asarray(drawn + random.choice([-3, 3]) * (-1.0) ** np.arange(steps))


def test_a_plain_error_would_call_correlated_noise_persistent_far_too_often() -> None:
    random = np.random.default_rng(4)
    runs = np.array([noise(random, 200, 0.6) for _ in range(500)])
    plain = np.abs(runs.mean(1)) / (runs.std(1, ddof=1) / math.sqrt(200)) > stats.norm.isf(CHANCE / 2)
    assert plain.mean() > 10 * CHANCE


@pytest.mark.parametrize("sign", [1, -1])
def test_an_injected_bias_is_found_with_its_size_sign_and_share(sign: int) -> None:
    """Bias 1 on noise of variance 1: half of the mean square is persistent."""
    runs = [persistence(sign + noise(np.random.default_rng(seed), 200, 0.3)) for seed in range(60)]
    found = [one for one in runs if one is not None]
    assert all(one.is_persistent and np.sign(one.mean) == sign for one in found)
    means, errors = np.array([one.mean for one in found]), np.array([one.error for one in found])
    assert means.mean() == pytest.approx(sign, abs=0.05) and errors.mean() == pytest.approx(means.std(ddof=1), rel=0.25)
    assert np.mean([one.share for one in found]) == pytest.approx(0.5, abs=0.04)


def test_the_error_is_that_of_the_formula() -> None:
    """By loops, from docs/definitions.md."""
    values = np.random.default_rng(1).normal(0.3, 1, 37)
    found, steps = persistence(values), len(values)
    assert found is not None and found.freedom == math.floor(0.41 * steps ** (2 / 3))
    squares = []
    for j in range(1, found.freedom + 1):
        terms = [(b - values.mean()) * math.cos(math.pi * j * (t + 0.5) / steps) for t, b in enumerate(values)]
        squares.append(2 / steps * math.fsum(terms) ** 2)
    error = math.sqrt(math.fsum(squares) / len(squares) / steps)
    assert found.error == pytest.approx(error) and found.mean == pytest.approx(values.mean())
    assert found.chance == pytest.approx(2 * stats.t.sf(abs(values.mean()) / error, found.freedom))
    assert found.share == pytest.approx(max(0.0, (values.mean() ** 2 - error**2) / np.mean(values**2)))


def test_the_accumulated_bias_ends_at_the_total_with_its_error() -> None:
    values = np.random.default_rng(2).normal(0.1, 1, 50)
    found = persistence(values)
    assert found is not None
    total, error = accumulated(values, found)
    assert total[-1] == pytest.approx(found.total) and error[-1] == pytest.approx(found.total_error)
    assert (np.diff(error) > 0).all()


def test_few_or_equal_values_are_no_trap() -> None:
    assert persistence(np.ones(LEAST_STEPS - 1)) is None
    nothing, constant = persistence(np.zeros(LEAST_STEPS)), persistence(np.ones(LEAST_STEPS))
    assert nothing is not None and not nothing.is_persistent and nothing.share == 0
    assert (
        constant is not None
        and constant.is_persistent
        and constant.share == 1
        and constant.error == pytest.approx(0, abs=1e-15)
    )
