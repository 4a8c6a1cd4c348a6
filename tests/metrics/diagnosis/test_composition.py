"""The split of a change into composition and size: against plain loops, and by the laws that it has to obey."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.diagnosis.composition import Mix, Split, at_fixed_mix, split

PARTS = 4
COUNTS = st.integers(0, 1000)
SIZES = st.floats(0, 10, allow_subnormal=False)


@st.composite
def mixes(draw: st.DrawFn) -> Mix:
    steps = draw(st.integers(1, 5))
    tokens = np.array(draw(st.lists(COUNTS, min_size=steps * PARTS, max_size=steps * PARTS)), float)
    sizes = np.array(draw(st.lists(SIZES, min_size=steps * PARTS, max_size=steps * PARTS)))
    tokens[0] += 1
    return Mix(tokens.reshape(steps, PARTS), (tokens * sizes).reshape(steps, PARTS))


def split_of(before: Mix, after: Mix) -> Split:
    found = split(before, after)
    assert found is not None
    return found


def oracle(before: Mix, after: Mix) -> tuple[float, float]:
    """(composition, size), in loops over parts, from the definition."""

    def totals(mix: Mix) -> tuple[list[float], list[float | None]]:
        every = math.fsum(mix.tokens.ravel())
        counts = [math.fsum(mix.tokens[:, k]) for k in range(PARTS)]
        sums = [math.fsum(mix.sums[:, k]) for k in range(PARTS)]
        return [n / every for n in counts], [s / n if n else None for n, s in zip(counts, sums, strict=True)]

    (w0, m0), (w1, m1) = totals(before), totals(after)
    composition = size = 0.0
    for k in range(PARTS):
        low, high = m0[k], m1[k]
        low = high if low is None else low
        high = low if high is None else high
        composition += (w1[k] - w0[k]) * ((low or 0.0) + (high or 0.0)) / 2
        size += ((high or 0.0) - (low or 0.0)) * (w0[k] + w1[k]) / 2
    return composition, size


@given(mixes(), mixes())
def test_both_parts_equal_those_of_plain_loops_and_add_up_to_the_change(before: Mix, after: Mix) -> None:
    found = split_of(before, after)
    composition, size = oracle(before, after)
    scale = 1e-12 * (1 + found.before + found.after)
    assert found.composition == pytest.approx(composition, rel=1e-9, abs=scale)
    assert found.size == pytest.approx(size, rel=1e-9, abs=scale)
    assert found.before == pytest.approx(before.sums.sum() / before.tokens.sum(), rel=1e-12, abs=1e-15)
    assert found.composition + found.size == pytest.approx(found.change, rel=1e-9, abs=scale)
    assert found.compositions.sum() == pytest.approx(found.composition, rel=1e-9, abs=10 * scale)


@given(mixes(), mixes())
def test_exchange_of_before_and_after_negates_both_parts(before: Mix, after: Mix) -> None:
    one, other = split_of(before, after), split_of(after, before)
    scale = 1e-12 * (1 + one.before + one.after)
    assert other.composition == pytest.approx(-one.composition, rel=1e-9, abs=scale)
    assert other.size == pytest.approx(-one.size, rel=1e-9, abs=scale)
    assert other.share == pytest.approx(one.share, rel=1e-9, nan_ok=True)
    assert other.composition_error == pytest.approx(one.composition_error, rel=1e-9, abs=scale, nan_ok=True)


@given(mixes(), st.floats(0.1, 10))
def test_an_equal_mix_has_no_composition(before: Mix, times: float) -> None:
    found = split_of(before, Mix(before.tokens * 3, before.sums * 3 * times))
    assert found.composition == pytest.approx(0, abs=1e-12 * (1 + found.after))
    assert found.size == pytest.approx(found.change, rel=1e-9, abs=1e-12)
    if found.before > 1e-9:
        assert found.size_factor == pytest.approx(times, rel=1e-9)


@given(mixes(), st.lists(st.floats(0.1, 10), min_size=PARTS, max_size=PARTS))
def test_equal_sizes_leave_composition_alone(before: Mix, times: list[float]) -> None:
    found = split_of(before, Mix(before.tokens * times, before.sums * times))
    assert found.size == pytest.approx(0, abs=1e-12 * (1 + found.before + found.after))


@given(mixes())
def test_equal_sizes_give_every_step_one_level_at_a_fixed_mix(mix: Mix) -> None:
    sizes = np.arange(1.0, PARTS + 1)
    levels = at_fixed_mix(Mix(mix.tokens, mix.tokens * sizes))
    known = mix.tokens.sum(axis=1) > 0
    mean = (mix.tokens * sizes).sum() / mix.tokens.sum()
    assert levels[known] == pytest.approx(mean, rel=1e-9)
    assert np.isnan(levels[~known]).all()


def test_a_side_without_tokens_or_with_an_infinite_distance_has_no_split() -> None:
    one, none = Mix(np.ones((2, 1)), np.ones((2, 1))), Mix(np.zeros((2, 1)), np.zeros((2, 1)))
    assert split(one, none) is None and split(none, one) is None
    assert split(one, Mix(np.ones((2, 1)), np.full((2, 1), np.inf))) is None


def test_a_change_within_its_error_has_no_share() -> None:
    draws = np.random.default_rng(0)
    tokens = draws.poisson(100, (60, 3)).astype(float)
    sums = tokens * draws.gamma(2.0, 1.0, (60, 3))
    found = split_of(Mix(tokens[:30], sums[:30]), Mix(tokens[30:], sums[30:]))
    assert abs(found.change) < 2 * found.change_error and np.isnan(found.share) and np.isnan(found.share_error)


def test_a_single_step_has_no_error() -> None:
    one, many = Mix(np.ones((1, 2)), np.array([[1.0, 2.0]])), Mix(np.ones((3, 2)), np.full((3, 2), 4.0))
    found = split_of(one, many)
    assert np.isnan(found.composition_error) and np.isnan(found.change_error) and np.isnan(found.share_error)
    assert found.composition == 0 and found.share == 0 and found.size == 2.5


def simulated(draws: np.random.Generator, steps: int, shares: np.ndarray, sizes: np.ndarray) -> Mix:
    """Steps whose mix and sizes scatter together: a step of many rare tokens also has larger distances."""
    mood = draws.normal(0, 0.15, steps)
    weights = shares * np.exp(np.outer(mood, np.arange(len(shares))))
    tokens = np.array([draws.multinomial(3000, row / row.sum()) for row in weights]).astype(float)
    return Mix(tokens, tokens * sizes * np.exp(mood + draws.normal(0, 0.1, steps))[:, None])


def test_the_errors_are_those_of_repeated_runs() -> None:
    draws = np.random.default_rng(1)
    before, after = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.3, 0.3])
    sizes = np.array([0.1, 0.5, 2.0])
    found = [
        split_of(simulated(draws, 40, before, sizes), simulated(draws, 60, after, 1.3 * sizes)) for _ in range(400)
    ]
    for name in ("composition", "size", "change", "share"):
        values = np.array([getattr(each, name) for each in found])
        stated = np.mean([getattr(each, f"{name}_error") for each in found])
        # 400 runs know a standard deviation to 3.5%; 20 blocks know it to 5% on average.
        assert stated == pytest.approx(values.std(), rel=0.15), name
