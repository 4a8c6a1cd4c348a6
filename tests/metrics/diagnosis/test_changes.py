"""Changes of a gap's level over the steps: found, dated within the stated interval, and none where there is none."""

import numpy as np
import pytest

from ratioscope.metrics.diagnosis.changes import changes, least_factor
from ratioscope.metrics.diagnosis.history import Course, History, course
from ratioscope.metrics.diagnosis.raised_steps import raised_steps

USUAL = 0.2
"""Scatter of log K3 between steps of the shipped healthy run, 236 tokens a step."""


def history(y: np.ndarray, seed: int, scatter: float = USUAL, wander: float = 0.0) -> History:
    """Log levels with noise. wander: correlation of the noise between neighbouring steps."""
    draws = np.random.default_rng(seed)
    noise = draws.normal(size=len(y))
    for at in range(1, len(y)):
        noise[at] = wander * noise[at - 1] + np.sqrt(1 - wander**2) * noise[at]
    return History(
        np.arange(len(y)), np.exp(y + scatter * noise - 6), np.full(len(y), 0.8 * scatter), np.full(len(y), 3000.0)
    )


def jump(at: int, factor: float, steps: int = 200) -> np.ndarray:
    return np.where(np.arange(steps) >= at, np.log(factor), 0.0)


def dated(found: tuple[Course, ...], at: int) -> bool:
    return len(found) == 1 and found[0].kind == "jump" and found[0].earliest <= at <= found[0].latest


def test_a_lasting_factor_of_one_point_three_is_dated_within_its_interval() -> None:
    ats = [40 + 37 * seed % 120 for seed in range(100)]
    found = [changes(history(jump(at, 1.3), seed)) for seed, at in enumerate(ats)]
    assert sum(dated(each, at) for each, at in zip(found, ats, strict=True)) >= 90
    factors = [np.log(each[0].factor) / each[0].error - np.log(1.3) / each[0].error for each in found if each]
    assert np.mean(np.abs(factors) < 2) > 0.9


@pytest.mark.parametrize(("wander", "most"), [(0.0, 2), (0.3, 6)])
def test_levels_that_only_scatter_have_no_change(wander: float, most: int) -> None:
    shapes = [(seed, steps) for seed in range(150) for steps in (30, 200)]
    found = [(seed, steps) for seed, steps in shapes if changes(history(np.zeros(steps), seed, wander=wander))]
    assert len(found) <= most, found  # of 300: below 1% and 2%


def test_ten_thousand_steps_that_scatter_have_no_change() -> None:
    assert [changes(history(np.zeros(10_000), seed)) for seed in range(3)] == [(), (), ()]


def test_two_changes_are_both_dated() -> None:
    y = jump(120, 1.5, 400) + jump(280, 0.6, 400)
    found = changes(history(y, 1))
    assert [each.kind for each in found] == ["jump", "jump"]
    for each, at, factor in zip(found, (120, 280), (1.5, 0.6), strict=True):
        assert each.earliest <= at <= each.latest
        assert each.factor == pytest.approx(factor, rel=0.1)


def test_a_rise_after_a_jump_is_a_change_of_its_own() -> None:
    steps = np.arange(300)
    y = jump(100, 0.5, 300) + 0.5 * np.log1p(np.maximum(steps - 200, 0))
    found = changes(history(y, 2))
    assert [each.kind for each in found] == ["jump", "rise"]
    assert found[1].earliest <= 201 <= found[1].latest  # the first step above the level


def test_few_resets_in_a_long_history_are_no_sawtooth() -> None:
    y = np.zeros(2000)
    y[500], y[1500] = 3.0, 3.0  # two single steps far above the others
    assert all(each.kind != "sawtooth" for each in changes(history(y, 3)))


def test_resets_again_and_again_are_one_sawtooth_with_its_falls() -> None:
    y = 1.2 * np.log1p(np.arange(60) % 10)
    (found,) = changes(history(y, 4, scatter=0.05))
    assert found.kind == "sawtooth" and found.falls == (10, 20, 30, 40, 50)


@pytest.mark.parametrize("begin", [0, 25])
def test_a_sawtooth_begins_with_its_first_rise_and_not_with_its_first_fall(begin: int) -> None:
    """Before it the gap has the level to which it falls back. A record that begins within a tooth begins with it."""
    tooth = 1.2 * np.log1p(np.arange(1, 11))
    y = np.concatenate([np.zeros(begin), tooth, *[[0.0], tooth] * 4])
    (found,) = changes(history(y, 4, scatter=0.1))
    assert found.kind == "sawtooth" and found.falls[0] == begin + 10
    assert begin <= found.onset <= begin + 1


def test_a_history_of_few_steps_has_no_change() -> None:
    assert changes(history(np.zeros(2), 0)) == ()
    assert least_factor(history(np.zeros(4), 0)) == np.inf


def test_the_least_factor_is_found_half_of_the_time_or_more() -> None:
    least = least_factor(history(np.zeros(200), 0))
    found = [changes(history(jump(100, 1.1 * least), seed)) for seed in range(40)]
    assert sum(bool(each) for each in found) >= 20


def _shape(name: str, steps: int) -> np.ndarray:
    share = np.arange(steps) / (steps - 1)
    late = np.maximum(np.arange(steps) - steps // 2, 0)
    shapes: dict[str, np.ndarray] = {
        "by an equal factor each step": share * np.log(10),
        "by the square of the steps": np.log(1 + 9 * share**2),
        "from the middle on, steep at first": np.log(1 + 4 * np.log1p(late)),
        "from the middle on": np.log(1 + 20 * late / steps),
    }
    return shapes[name]


@pytest.mark.parametrize("steps", [60, 200, 1000])
@pytest.mark.parametrize("shape", ["by an equal factor each step", "by the square of the steps"])
def test_a_gap_that_grows_all_along_has_no_step_at_which_it_broke(shape: str, steps: int) -> None:
    y = _shape(shape, steps)
    for seed in range(5):
        (found,) = changes(history(y, seed, scatter=0.05))
        assert found.is_steady and found.from_start and found.onset == 0
        assert found.factor == pytest.approx(10, rel=0.35)


@pytest.mark.parametrize("steps", [60, 200, 1000])
@pytest.mark.parametrize("shape", ["from the middle on, steep at first", "from the middle on"])
def test_a_gap_that_grows_from_a_later_step_on_does_not_grow_all_along(shape: str, steps: int) -> None:
    y = _shape(shape, steps)
    for seed in range(5):
        for scatter in (0.05, 0.2):
            found = course(history(y, seed, scatter))
            assert not found.is_steady and not found.from_start
            assert 0.4 * steps < found.onset < 0.6 * steps


def raised(spans: list[tuple[int, int]], factor: float, steps: int = 60) -> np.ndarray:
    at = np.arange(steps)
    return np.where(np.any([(at >= first) & (at <= last) for first, last in spans], axis=0), np.log(factor), 0.0)


@pytest.mark.parametrize(
    "spans", [[(10, 19)], [(0, 9)], [(10, 19), (35, 59)], [(4, 7), (16, 19), (28, 31), (40, 43)]], ids=str
)
def test_spans_of_a_larger_gap_are_dated_and_are_no_sawtooth(spans: list[tuple[int, int]]) -> None:
    """A setting, a load or other data that comes and goes: the gap has two levels, and does not grow while it is raised."""
    known = history(raised(spans, 20), 5)
    found = raised_steps(known)
    assert found is not None and found.spans == tuple(spans) and found.factor == pytest.approx(20, rel=0.2)
    edges = [each for first, last in spans for each in (first, last + 1) if 0 < each < 60]
    assert [(each.kind, each.onset, each.factor > 1) for each in changes(known)] == [
        ("jump", edge, edge in dict(spans)) for edge in edges
    ]


@pytest.mark.parametrize(
    "y",
    [
        jump(30, 20, 60),
        np.zeros(60),
        1.2 * np.log1p(np.arange(60) % 10),
        np.linspace(0, 5, 60),
        np.tile([0.0, 3.0], 30),
    ],
    ids=["one jump", "one level", "missed syncs", "a rise", "every second step"],
)
def test_what_does_not_fall_back_from_a_level_of_its_own_is_no_raised_span(y: np.ndarray) -> None:
    assert all(raised_steps(history(y, seed, scatter)) is None for seed in range(20) for scatter in (0.05, USUAL))


def test_a_gap_that_shrinks_has_not_one_level() -> None:
    (found, *_) = changes(history(np.maximum(-np.arange(60) / 8, -4), 6))
    assert found.factor < 0.5 and found.onset <= 8
