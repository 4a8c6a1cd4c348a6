"""Holes in the recorded steps: where a line over steps breaks, and how many steps are missing."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Steps = Sequence[int] | npt.NDArray[np.float64]


def holes(steps: Steps, last: Steps | None = None) -> npt.NDArray[np.int64]:
    """Indices of the steps after which the distance to the next exceeds the usual one, the lower median of all distances.

    A run that records every tenth step has no hole. steps: ascending. last: if a row covers several steps, its last step.

    >>> holes([1, 2, 3, 5, 6]).tolist(), holes([0, 10, 20, 30]).tolist(), holes([7]).tolist()
    ([2], [], [])
    """
    distances = np.asarray(steps)[1:] - np.asarray(steps if last is None else last)[:-1]
    if not len(distances):
        return np.zeros(0, np.int64)
    return np.flatnonzero(distances > np.quantile(distances, 0.5, method="lower"))


def missing_steps(steps: Sequence[int]) -> int:
    """How many steps are missing between the first and the last of these ascending steps.

    The usual distance between two steps is the upper median of all distances: a run that records every tenth step misses none.

    >>> missing_steps([1, 2, 3, 6]), missing_steps([0, 10, 20, 40]), missing_steps([7])
    (2, 1, 0)
    """
    distances = [after - before for before, after in zip(steps, steps[1:], strict=False)]
    usual = sorted(distances)[len(distances) // 2] if distances else 1
    return sum(distance // usual - 1 for distance in distances if distance > usual)
