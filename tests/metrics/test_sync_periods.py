"""The gap under other settings: that of an engine that is synced batch by batch, between its lags, and never extrapolated."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.analysis.staleness import Lagged
from ratioscope.metrics.analysis.sync_periods import WhatIfs, lag_bounds, sync_periods, updates_per_batch

VALUES = st.lists(st.floats(0, 1e6, allow_subnormal=False), min_size=2, max_size=20)


def recorded(values: list[float], batch: int = 1, least: int = 0) -> list[Lagged]:
    return [Lagged(least + place * batch, 10, value, 0.1 * value) for place, value in enumerate(values)]


def synced(k3: dict[int, "np.ndarray[tuple[int], np.dtype[np.float64]]"], every: int, least: int, batch: int) -> float:
    """The mean K3 of an engine that is synced before each so many batches, token by token."""
    trained = engine = 0
    tokens: list[float] = []
    for place in range(8 * every):
        if place % every == 0:
            engine = trained - least
        tokens += [float(value) for value in k3[trained - engine]]
        trained += batch
    return sum(tokens) / len(tokens)


@pytest.mark.parametrize(("least", "batch"), [(0, 1), (0, 2), (1, 3)])
def test_the_gap_is_that_of_an_engine_that_is_synced_batch_by_batch(least: int, batch: int) -> None:
    draws = np.random.default_rng(0)
    k3 = {least + place * batch: draws.exponential(0.01 * (1 + place) ** 2, 300) for place in range(9)}
    found = sync_periods(
        [Lagged(lag, len(own), float(own.mean()), float(own.std() / 300**0.5)) for lag, own in k3.items()]
    )
    assert [each.updates for each in found.each] == [batch * every for every in (1, 2, 4, 8, 16)]
    for each, every in zip(found.known, (1, 2, 4, 8), strict=True):
        assert each.mean == pytest.approx(synced(k3, every, least, batch)) and each.tokens == 300 * every
    assert found.each[-1].missing == least + 9 * batch and math.isnan(found.each[-1].mean)
    assert found.recorded == pytest.approx(np.mean([*k3.values()]))


@pytest.mark.parametrize(("least", "batch"), [(0, 1), (0, 2), (1, 3)])
def test_a_bound_makes_each_older_token_one_of_the_bound(least: int, batch: int) -> None:
    draws = np.random.default_rng(2)
    k3 = {least + place * batch: draws.exponential(0.01 * (1 + place) ** 2, 60 * (1 + place)) for place in range(8)}
    found = lag_bounds([Lagged(lag, len(own), float(own.mean())) for lag, own in k3.items()])
    assert [each.updates for each in found.each] == [least + batch * above for above in (0, 1, 2, 4)]
    for each in found.each:
        bounded = [
            value if lag <= each.updates else k3[each.updates].mean() for lag, own in k3.items() for value in own
        ]
        assert each.mean == pytest.approx(sum(bounded) / len(bounded))
        assert each.tokens == sum(len(own) for lag, own in k3.items() if lag <= each.updates)


def test_updates_per_batch_take_each_update_as_often() -> None:
    found = updates_per_batch([Lagged(update, 50, 0.1 * update**2, 0.01) for update in range(4)])
    for each, every in zip(found.known, (1, 2, 4), strict=True):
        drift = [0.1 * update**2 for _ in range(5) for update in range(every)]
        assert each.updates == every and each.mean == pytest.approx(sum(drift) / len(drift))
    assert found.each[-1].missing == 4 and updates_per_batch([Lagged(0, 9, 0.1)]).reason.startswith(
        "every token has update 0"
    )
    assert [each.missing for each in updates_per_batch([Lagged(0, 9, 0.1), Lagged(2, 9, 0.2)]).each] == [None, 1]


@given(VALUES, st.integers(0, 9))
def test_a_bound_lies_between_the_least_lag_and_the_record_if_the_gap_grows(values: list[float], least: int) -> None:
    lags = recorded(sorted(values), 1, least)
    found = lag_bounds(lags)
    means = [each.mean for each in found.each]
    assert means[0] == pytest.approx(min(values)) and means[-1] <= found.recorded * (1 + 1e-12)
    assert all(one <= other * (1 + 1e-12) for one, other in zip(means, means[1:], strict=False))
    holed = lag_bounds([each for each in lags if each.lag != least + 1])
    assert all((each.missing is None) == (each.updates != least + 1) for each in holed.each)


@pytest.mark.parametrize("what_if", [sync_periods, lag_bounds, updates_per_batch])
def test_the_errors_are_those_of_repeated_runs(what_if: Callable[[Sequence[Lagged]], WhatIfs]) -> None:
    draws = np.random.default_rng(1)
    means, errors = (0.02, 0.05, 0.3, 0.4), (0.002, 0.004, 0.02, 0.03)
    told = what_if([Lagged(lag, 9, m, s) for lag, (m, s) in enumerate(zip(means, errors, strict=True))])
    runs = [
        what_if([Lagged(lag, 9, draws.normal(m, s), s) for lag, (m, s) in enumerate(zip(means, errors, strict=True))])
        for _ in range(4000)
    ]
    for place, each in enumerate(told.known):
        assert each.error == pytest.approx(np.std([run.known[place].mean for run in runs]), rel=0.06)


@given(VALUES, st.integers(1, 9), st.integers(0, 9))
def test_the_gap_lies_between_those_of_its_lags_and_a_growing_one_grows_with_the_period(
    values: list[float], batch: int, least: int
) -> None:
    found = sync_periods(recorded(values, batch, least)).known
    for each in found:
        own = values[: len(each.lags)]
        assert min(own) * (1 - 1e-12) <= each.mean <= max(own) * (1 + 1e-12)
    growing = [each.mean for each in sync_periods(recorded(sorted(values), batch, least)).known]
    assert all(one <= other * (1 + 1e-12) for one, other in zip(growing, growing[1:], strict=False))


@given(VALUES, st.integers(0, 30))
def test_a_lag_that_is_not_on_record_ends_the_periods(values: list[float], hole: int) -> None:
    lags = [each for each in recorded(values) if each.lag != hole]
    found = sync_periods(lags)
    assert all(each.mean >= 0 for each in found.known) and len(found.known) == max(len(found.each) - 1, 0)
    if found.each:
        assert found.each[-1].missing not in {each.lag for each in lags} and found.known


@pytest.mark.parametrize(
    ("lags", "reason"),
    [
        ([], "no token with a known lag is on record"),
        ([Lagged(-1, 5, 0.1), Lagged(2, 0, 0.1), Lagged(3, 5, math.nan)], "no token with a known lag is on record"),
        ([Lagged(0, 5, 0.1)], "every token has lag 0: no other lag is on record"),
    ],
)
def test_a_run_without_two_lags_gets_a_reason_and_no_number(lags: list[Lagged], reason: str) -> None:
    found = sync_periods(lags)
    assert found.reason == reason and not found.each and math.isnan(found.recorded)


def test_an_unknown_error_is_unknown_and_the_value_stands() -> None:
    first, second, _ = sync_periods([Lagged(0, 5, 0.1, 0.01), Lagged(1, 5, 0.3)]).each
    assert first.error == pytest.approx(0.01) and math.isnan(second.error) and second.mean == pytest.approx(0.2)
