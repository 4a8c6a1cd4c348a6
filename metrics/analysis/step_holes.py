"""Where steps are missing among those on record: what is drawn over the steps, or told of them, breaks there."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Steps = Sequence[int] | npt.NDArray[np.float64]


def holes(steps: Steps, last: Steps | None = None) -> npt.NDArray[np.int64]:
    """Places in ascending steps after which the next lies further away than usual, the lower median of all distances.

    A run that records every tenth step has no hole. last: where rows are of several steps, the last of each.

    >>> holes([1, 2, 3, 5, 6]).tolist(), holes([0, 10, 20, 30]).tolist(), holes([7]).tolist()
    ([2], [], [])
    """
    apart = np.asarray(steps)[1:] - np.asarray(steps if last is None else last)[:-1]
    if not len(apart):
        return np.zeros(0, np.int64)
    return np.flatnonzero(apart > np.quantile(apart, 0.5, method="lower"))
