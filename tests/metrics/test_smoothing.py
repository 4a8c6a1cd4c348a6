"""Smoothing and grouping: the formulas written out, and the laws that a reader takes for granted."""

import math

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.analysis.over_steps import RunSeries, across, smoothed

Floats = npt.NDArray[np.float64]
VALUES = st.one_of(st.floats(-1e6, 1e6), st.just(math.nan), st.just(math.inf))
COURSES = st.lists(st.tuples(st.integers(0, 10_000), VALUES), min_size=1, max_size=40, unique_by=lambda row: row[0])
HALF_LIVES = st.floats(0.05, 5000)


def arrays(rows: list[tuple[int, float]]) -> tuple[Floats, Floats]:
    ordered = sorted(rows)
    return np.array([row[0] for row in ordered], float), np.array([row[1] for row in ordered], float)


def written_out(steps: Floats, values: Floats, half_life: float) -> list[float]:
    result = []
    for i, value in enumerate(values):
        pairs = [
            (2.0 ** ((steps[j] - steps[i]) / half_life), values[j]) for j in range(i + 1) if np.isfinite(values[j])
        ]
        weights = math.fsum(w for w, _ in pairs)
        result.append(math.fsum(w * v for w, v in pairs) / weights if np.isfinite(value) else math.nan)
    return result


@given(COURSES, HALF_LIVES)
def test_it_is_the_weighted_mean_written_out(rows: list[tuple[int, float]], half_life: float) -> None:
    steps, values = arrays(rows)
    size = np.abs(values[np.isfinite(values)]).max(initial=1e-300)
    np.testing.assert_allclose(
        smoothed(steps, values, half_life), written_out(steps, values, half_life), rtol=1e-9, atol=1e-9 * size
    )


@given(COURSES, HALF_LIVES, st.floats(-1e3, 1e3), st.floats(-10, 10))
def test_it_is_linear_and_only_distances_count(
    rows: list[tuple[int, float]], half_life: float, shift: float, scale: float
) -> None:
    steps, values = arrays(rows)
    values = np.where(np.isfinite(values), values, np.nan)
    own = smoothed(steps, values, half_life)
    np.testing.assert_allclose(
        smoothed(steps + 12345, scale * values + shift, half_life), scale * own + shift, atol=1e-4
    )


@given(COURSES, HALF_LIVES, st.integers(1, 39))
def test_the_past_is_not_changed_by_what_comes_and_holes_do_not_count(
    rows: list[tuple[int, float]], half_life: float, cut: int
) -> None:
    steps, values = arrays(rows)
    whole = smoothed(steps, values, half_life)
    np.testing.assert_allclose(smoothed(steps[:cut], values[:cut], half_life), whole[:cut], rtol=1e-9, atol=1e-6)
    known = np.isfinite(values)
    np.testing.assert_allclose(smoothed(steps[known], values[known], half_life), whole[known], rtol=1e-9, atol=1e-6)
    assert np.isnan(whole[~known]).all()


@given(COURSES, HALF_LIVES)
def test_it_stays_between_the_extremes_so_far(rows: list[tuple[int, float]], half_life: float) -> None:
    steps, values = arrays(rows)
    finite = np.where(np.isfinite(values), values, np.nan)
    own = smoothed(steps, values, half_life)
    known = np.isfinite(values)
    room = 1e-9 * (1 + np.nanmax(np.abs(finite), initial=0.0))
    assert (own[known] >= np.fmin.accumulate(finite)[known] - room).all()
    assert (own[known] <= np.fmax.accumulate(finite)[known] + room).all()


def test_short_half_lives_follow_and_endless_ones_are_the_mean_so_far() -> None:
    steps, values = np.arange(5.0), np.array([1.0, 5.0, 2.0, 8.0, 4.0])
    np.testing.assert_allclose(smoothed(steps, values, 0.01), values)
    np.testing.assert_allclose(smoothed(steps, values, 1e12), np.cumsum(values) / np.arange(1, 6))


def test_very_long_and_very_large_courses_neither_overflow_nor_forget() -> None:
    steps = np.arange(100_000.0)
    np.testing.assert_allclose(smoothed(steps, np.full(100_000, 1e300), 2.0), 1e300, rtol=1e-12)
    step = smoothed(steps, np.where(steps < 50_000, 0.0, 1.0), 10.0)
    np.testing.assert_allclose(step[50_009], 0.5, atol=1e-9)  # ten values of ones: one half-life
    assert len(smoothed(np.zeros(0), np.zeros(0), 3.0)) == 0


@given(st.lists(COURSES, min_size=1, max_size=5))
def test_a_group_does_not_depend_on_the_order_of_its_runs(runs: list[list[tuple[int, float]]]) -> None:
    courses = [RunSeries(*arrays(rows)) for rows in runs]
    found, turned = across(courses), across(courses[::-1])
    np.testing.assert_array_equal(found.steps, turned.steps)
    np.testing.assert_allclose(found.mean, turned.mean, rtol=1e-9, atol=1e-6)
    np.testing.assert_array_equal(found.low, turned.low)
    assert found.runs.sum() == sum(int((~np.isnan(course.values)).sum()) for course in courses)
    known = found.runs > 0
    assert (found.low[known] <= found.mean[known]).all() and (found.mean[known] <= found.high[known]).all()
    assert np.isnan(found.mean[~known]).all()


@given(COURSES, st.integers(1, 5))
def test_a_group_of_one_run_and_of_equal_runs_is_that_run(rows: list[tuple[int, float]], times: int) -> None:
    course = RunSeries(*arrays(rows))
    found = across([course] * times)
    np.testing.assert_array_equal(found.steps, course.steps)
    for line in (found.mean, found.low, found.high):
        np.testing.assert_allclose(line, course.values, rtol=1e-12)


def test_the_mean_is_over_the_runs_that_have_the_step() -> None:
    found = across(
        [
            RunSeries(np.array([0.0, 1.0]), np.array([1.0, 3.0])),
            RunSeries(np.array([1.0, 2.0]), np.array([5.0, math.inf])),
            RunSeries(np.array([1.0]), np.array([math.nan])),
        ]
    )
    assert found.steps.tolist() == [0, 1, 2] and found.mean.tolist() == [1, 4, math.inf]
    assert found.runs.tolist() == [1, 2, 1] and found.low.tolist() == [1, 3, math.inf]
    assert across([]).steps.tolist() == []
