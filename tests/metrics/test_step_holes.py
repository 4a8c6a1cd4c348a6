"""The usual distance between steps: charts, events, alerts and the report agree on where steps are missing."""

from hypothesis import given
from hypothesis import strategies as st

from ratioscope.metrics.step_holes import holes, missing_steps, usual_distance

STEPS = st.sets(st.integers(0, 60), min_size=1).map(sorted)


@given(STEPS)
def test_steps_are_missing_exactly_where_there_are_holes(steps: list[int]) -> None:
    distances = [after - before for before, after in zip(steps, steps[1:], strict=False)]
    expected = [index for index, distance in enumerate(distances) if distance > usual_distance(distances)]
    assert holes(steps).tolist() == expected
    assert (missing_steps(steps) > 0) is any(distances[index] >= 2 * usual_distance(distances) for index in expected)


def test_two_distances_are_compared_with_the_smaller_one() -> None:
    assert usual_distance([1, 2]) == 1 and holes([1, 2, 4]).tolist() == [1] and missing_steps([1, 2, 4]) == 1


def test_steps_may_lie_as_far_apart_as_numbers_allow() -> None:
    assert missing_steps([-(2**63), 0, 1, 2, 2**63 - 1]) == 2**64 - 5
