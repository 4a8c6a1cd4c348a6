"""Holes in the recorded steps: where a line over steps breaks, where a spell ends, and how many steps are missing."""

from collections.abc import Sequence

import numpy as np

from ratioscope.arrays import Floats, Integers

Numbers = Floats | Integers
StepNumbers = Sequence[int] | Numbers


def usual_distance(distances: StepNumbers) -> float:
    """The lower median of the distances between neighbouring steps; 1 where there are none.

    >>> usual_distance([1, 1, 3]), usual_distance([10, 20]), usual_distance([])
    (1, 10, 1)
    """
    return sorted(distances)[(len(distances) - 1) // 2] if len(distances) else 1


def holes(steps: StepNumbers, last: StepNumbers | None = None) -> Integers:
    """Indices of the steps after which the distance to the next exceeds the usual one.

    A run that records every tenth step has no hole. steps: ascending. last: if a row covers several steps, its last step.

    >>> holes([1, 2, 3, 5, 6]).tolist(), holes([0, 10, 20, 30]).tolist(), holes([7]).tolist()
    ([2], [], [])
    """
    distances = np.asarray(steps)[1:] - np.asarray(steps if last is None else last)[:-1]
    return np.flatnonzero(distances > usual_distance(distances))


def missing_steps(steps: Sequence[int]) -> int:
    """Number of steps that are missing in the holes between the first and the last of these ascending steps.

    >>> missing_steps([1, 2, 3, 6]), missing_steps([0, 10, 20, 40]), missing_steps([7])
    (2, 1, 0)
    """
    distances = [after - before for before, after in zip(steps, steps[1:], strict=False)]
    usual = int(usual_distance(distances))  # whole numbers: steps may lie further apart than 64 bits can tell
    return sum(distance // usual - 1 for distance in distances if distance > usual)
