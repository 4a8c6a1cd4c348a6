"""How figures spell numbers, space their axes and thin their points."""

import math
import sys

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.sizes import examples
from support.spelled import number_of

from ratioscope.app.figures.drawing import scale, thinning
from ratioscope.app.presentation import digits

FINITE = st.floats(-1e12, 1e12, allow_subnormal=False)


@examples(200)
@given(FINITE)
def test_digits_are_within_half_a_unit_of_the_third(value: float) -> None:
    shown = digits.digits(value)
    assert number_of(shown) == pytest.approx(value, rel=0.0051, abs=0)


@examples(200)
@given(FINITE, st.floats(1e-12, 1e6))
def test_a_value_is_spelled_as_exactly_as_its_error_says(value: float, error: float) -> None:
    shown = digits.plus_minus(value, error)
    value_shown, error_shown = (number_of(part) for part in shown.split(" ± "))
    assert error_shown == pytest.approx(error, rel=0.051)
    assert abs(value_shown - value) <= max(0.06 * error, 5.1e-6 * abs(value))


@examples(100)
@given(st.lists(st.one_of(FINITE, st.just(math.nan), st.just(math.inf)), min_size=1, max_size=300), st.integers(1, 40))
def test_thinning_keeps_every_extreme_and_the_two_ends(values: list[float], points: int) -> None:
    array = np.array(values)
    steps = np.arange(len(array), dtype=np.float64)
    drawn = thinning.thinned(steps, array, points=points)
    finite = array[np.isfinite(array)]
    assert len(drawn.mean) == min(points, len(array)) and drawn.first[0] == 0 and drawn.last[-1] == len(array) - 1
    assert (drawn.first[1:] == drawn.last[:-1] + 1).all()
    if len(finite):
        assert np.nanmax(drawn.high) == finite.max() and np.nanmin(drawn.low) == finite.min()
    assert bool(drawn.note) == (len(array) > points)


def test_no_rows_thin_to_no_points() -> None:
    assert thinning.thinned(np.zeros(0), np.zeros(0)).exact


@examples(200)
@given(st.lists(FINITE, min_size=1, max_size=50))
def test_every_axis_keeps_the_order_of_values(values: list[float]) -> None:
    array = np.unique(np.array(values))
    places = scale.suitable(array).place(array)
    assert np.isfinite(places).all() and (np.diff(places) >= 0).all()


def test_an_axis_is_logarithmic_only_where_a_plain_one_would_hide_values() -> None:
    assert scale.suitable([1.0, 2.0, 30.0]) == scale.PLAIN
    assert scale.suitable([1e-4, 1e-4, 2e-4, 1.0]) == scale.LOGARITHMIC
    assert scale.suitable([-1e-4, 1e-4, 2e-4, 1.0]).word == "signed-log axis"
    assert scale.suitable([0.0, 0.0]) == scale.PLAIN and scale.suitable([math.nan, math.inf]) == scale.PLAIN


@examples(100)
@given(st.lists(st.one_of(FINITE, st.floats(-1e308, 1e308, allow_subnormal=False)), min_size=2, max_size=30))
@example([1e12, 5e-305, sys.float_info.min])  # a decade below the least is no float
@example([1e-4, 1.0, sys.float_info.max])  # nor one above the greatest
@example([-1.0, 1e300, sys.float_info.max])
@example([sys.float_info.max, sys.float_info.min])
@example([1.0, 1.0, -1e308, 1e308, 1e308])  # twice the typical size is no float
def test_ticks_stand_where_their_values_are(values: list[float]) -> None:
    chosen = scale.suitable(values)
    places = chosen.place(np.array(values))
    axis = chosen.axis(*scale.padded(float(places.min()), float(places.max())))
    for place, text in zip(axis.get("tickvals", ()), axis.get("ticktext", ()), strict=True):
        assert float(chosen.place(number_of(text))) == pytest.approx(place, abs=0.05)
