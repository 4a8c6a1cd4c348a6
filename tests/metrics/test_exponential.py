"""exp by products and sums: against 40 digits of decimal arithmetic, and by what must hold wherever a number lies."""

from decimal import Context, Decimal

import numpy as np
import pytest

from ratioscope.metrics.exponential import HIGHEST, LOWEST, exp, shares

RANDOM = np.random.default_rng(0)


@pytest.mark.parametrize("size", [1e-9, 1e-4, 0.1, 1.0, 20.0, 700.0])
def test_the_error_is_at_most_1_1_units_in_the_last_place(size: float) -> None:
    x = RANDOM.uniform(-size, size, 1000)
    found, context = exp(x), Context(prec=40)
    wanted = [context.exp(Decimal(float(each))) for each in x]
    errors = [
        abs(Decimal(float(one)) - other) / Decimal(float(np.spacing(one)))
        for one, other in zip(found, wanted, strict=True)
    ]
    assert max(errors) < 1.1


def test_numbers_beyond_the_limits_give_0_and_inf_and_nan_stays_nan() -> None:
    x = np.array([0.0, -0.0, -np.inf, np.inf, np.nan, LOWEST - 1e-9, HIGHEST + 1e-9])
    np.testing.assert_array_equal(exp(x), [1.0, 1.0, 0.0, np.inf, np.nan, 0.0, np.inf])
    np.testing.assert_allclose(exp(np.array([LOWEST, HIGHEST])), np.exp([LOWEST, HIGHEST]), rtol=1e-15)
    assert len(exp(np.empty(0))) == 0


def test_a_number_has_the_same_bits_among_others_and_beside_odd_ones() -> None:
    x = RANDOM.normal(0, 5, 20_000)
    alone = np.concatenate([exp(each) for each in np.split(x, 100)])
    beside = exp(np.append(x, [np.nan, -np.inf, 1e4]))[: len(x)]
    np.testing.assert_array_equal(exp(x), alone)
    np.testing.assert_array_equal(exp(x), beside)
    np.testing.assert_array_equal(exp(x, out=np.empty(len(x))), alone)


def test_the_table_has_the_powers_of_2() -> None:
    powers = (shares() + (np.arange(len(shares())) << 41)).view(np.float64)
    np.testing.assert_array_equal(powers, [2.0 ** (i / 2048) for i in range(2048)])
