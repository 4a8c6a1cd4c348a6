"""The doubling of a growing gap: found where an exponential fits to the end, and nowhere else."""

from collections.abc import Callable

import numpy as np
import pytest

from ratioscope.arrays import Floats
from ratioscope.metrics.diagnosis.doubling import doubling
from ratioscope.metrics.diagnosis.history import History

Logs = Callable[[Floats], Floats]


def _history(logs: Logs, steps: int = 600, seed: int = 0) -> History:
    """A level of 0.002 times exp(logs of the step), with noise of 12% that is known."""
    at = np.arange(steps)
    noise = np.random.default_rng(seed).normal(0, 0.12, steps)
    level = 2e-3 * np.exp(logs(at.astype(np.float64)) + noise)
    return History(at, level, np.full(steps, 0.12), np.full(steps, 4000.0))


@pytest.mark.parametrize("seed", range(3))
def test_an_exponential_has_its_time_within_three_errors(seed: int) -> None:
    found = doubling(_history(lambda at: at / 150 * np.log(2), seed=seed))
    assert found is not None and (found.first, found.last) == (0, 599)
    assert abs(found.steps - 150) < 3 * found.error < 15


def test_growth_that_began_late_is_fitted_from_its_beginning() -> None:
    found = doubling(_history(lambda at: np.maximum(at - 300, 0) / 60 * np.log(2)))
    assert found is not None and 280 < found.first < 360 and abs(found.steps - 60) < 5


@pytest.mark.parametrize(
    "logs",
    [
        lambda at: 0 * at,
        lambda at: -at / 200,
        lambda at: np.where(at > 300, 2.0, 0.0),
        lambda at: 2 * np.log1p(at / 60),
        lambda at: np.log(1 + at % 100),
    ],
    ids=["flat", "falling", "a jump", "a power", "a sawtooth"],
)
def test_nothing_else_is_called_doubling(logs: Logs) -> None:
    assert all(doubling(_history(logs, seed=seed)) is None for seed in range(3))


def test_few_steps_and_odd_values_have_none() -> None:
    rising = _history(lambda at: at / 2, steps=7)
    assert doubling(rising) is None
    empty = np.zeros(0)
    assert doubling(History(empty.astype(np.int64), empty, empty, empty)) is None
    unknown = _history(lambda at: at / 100)
    assert doubling(History(unknown.steps, np.full(600, np.nan), unknown.error, unknown.tokens)) is None
