"""What is left at lag 0, the excess over it and the share that lag explains, token by token; and their laws."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ratioscope.metrics.analysis.staleness import Lagged, lag_bucket, staleness

VALUES = st.floats(0, 1e6, allow_subnormal=False)
LAGS = st.lists(
    st.builds(Lagged, st.integers(0, 9), st.integers(1, 10**6), VALUES, st.floats(0, 1e3)),
    min_size=1,
    max_size=6,
    unique_by=lambda each: each.lag,
)


def test_the_parts_of_a_gap_are_those_of_its_tokens() -> None:
    draws = np.random.default_rng(0)
    tokens = {0: draws.exponential(0.01, 400), 1: draws.exponential(0.05, 250), 3: draws.exponential(0.2, 90)}
    found = staleness([Lagged(lag, len(k3), float(k3.mean())) for lag, k3 in tokens.items()])
    every = np.concatenate(list(tokens.values()))
    fresh = tokens[0].mean()
    assert found.value == pytest.approx(every.mean()) and found.fresh == pytest.approx(fresh)
    assert found.excess == pytest.approx((every - fresh).mean())
    assert found.explained == pytest.approx((every - fresh).sum() / every.sum())
    assert found.tokens == 740 and found.reason == ""


def test_the_errors_are_those_of_repeated_runs() -> None:
    draws = np.random.default_rng(1)
    sizes, means, errors = (300, 200, 100), (0.02, 0.05, 0.3), (0.002, 0.004, 0.02)
    repeated = [
        staleness(
            [
                Lagged(lag, n, draws.normal(m, s), s)
                for lag, n, m, s in zip((0, 1, 2), sizes, means, errors, strict=True)
            ]
        )
        for _ in range(4000)
    ]
    told = staleness([Lagged(lag, n, m, s) for lag, n, m, s in zip((0, 1, 2), sizes, means, errors, strict=True)])
    assert told.excess_error == pytest.approx(np.std([each.excess for each in repeated]), rel=0.06)
    assert told.explained_error == pytest.approx(np.std([each.explained for each in repeated]), rel=0.06)
    assert told.value_error == pytest.approx(np.std([each.value for each in repeated]), rel=0.06)
    assert told.fresh_error == 0.002


@given(LAGS)
def test_the_share_lies_between_none_and_all_or_is_not_told(lags: list[Lagged]) -> None:
    found = staleness(lags)
    if not any(each.lag == 0 for each in lags):
        assert math.isnan(found.fresh) and math.isnan(found.explained) and "lag 0" in found.reason
    elif found.value == 0:
        assert math.isnan(found.explained) and "zero" in found.reason
    else:
        assert 0 <= found.explained <= 1 and found.reason == ""
        assert found.value == pytest.approx(found.fresh + found.excess, rel=1e-9, abs=1e-12)


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=6), VALUES, st.floats(0, 1))
@example([1, 1], 1.814676771689086e-258, 1.0)
def test_equal_gaps_have_no_excess_whatever_their_lags(tokens: list[int], value: float, error: float) -> None:
    found = staleness([Lagged(lag, n, value, error) for lag, n in enumerate(tokens)])
    assert found.excess == 0 and (found.explained == 0 or value == 0)


@given(st.integers(1, 10**6), VALUES)
def test_tokens_of_lag_0_alone_have_no_excess_and_no_uncertainty_about_it(tokens: int, value: float) -> None:
    found = staleness([Lagged(0, tokens, value, 0.1)])
    assert found.excess == 0 and found.excess_error == 0
    assert value == 0 or (found.explained == 0 and found.explained_error == pytest.approx(0, abs=1e-12))


@given(LAGS, st.integers(1, 60))
def test_the_share_knows_no_unit(lags: list[Lagged], scale: int) -> None:
    scaled = [Lagged(each.lag, each.tokens, each.value * 2**scale, each.error * 2**scale) for each in lags]
    first, second = staleness(lags), staleness(scaled)
    assert second.explained == pytest.approx(first.explained, nan_ok=True, rel=1e-9)


@given(LAGS)
def test_a_lag_cut_in_two_changes_nothing(lags: list[Lagged]) -> None:
    cut = [part for each in lags for part in ([each] if each.lag == 0 else _halves(each))]
    for name in ("tokens", "value", "fresh", "excess", "explained"):
        whole, parts = getattr(staleness(lags), name), getattr(staleness(cut), name)
        assert parts == pytest.approx(whole, nan_ok=True, rel=1e-9, abs=1e-9)


def test_lower_gaps_at_later_lags_are_said_and_explain_nothing() -> None:
    found = staleness([Lagged(0, 10, 0.3), Lagged(1, 30, 0.1)])
    assert found.excess == pytest.approx(-0.15) and found.explained == 0


@pytest.mark.parametrize("lags", [[], [Lagged(0, 0, 0.1)], [Lagged(0, 5, math.nan)]])
def test_nothing_on_record_gives_nothing(lags: list[Lagged]) -> None:
    found = staleness(lags)
    assert found.tokens == 0 and math.isnan(found.value) and "no token" in found.reason


def test_an_infinite_gap_is_not_shared_out() -> None:
    found = staleness([Lagged(0, 5, 0.1), Lagged(1, 5, math.inf)])
    assert math.isinf(found.value) and math.isnan(found.explained) and "infinite" in found.reason


@given(st.integers(-9, 5000), st.booleans())
def test_every_lag_is_in_its_bucket_and_buckets_do_not_overlap(lag: int, several: bool) -> None:
    first, last = lag_bucket(lag, several)
    assert first <= lag <= last
    if several and lag >= 0:
        assert lag_bucket(first, True) == lag_bucket(last, True) == (first, last)
        assert lag_bucket(last + 1, True)[0] == last + 1


def _halves(each: Lagged) -> list[Lagged]:
    half = float(Fraction(each.tokens) / 2)
    return [Lagged(each.lag, half, each.value, each.error), Lagged(each.lag + 100, half, each.value, each.error)]
