"""Two levels of values in a row: where the second one begins."""

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers


def best_changes(values: Floats, row: Integers, least: float) -> tuple[Integers, Booleans]:
    """(index of the first value of the second level of each row that has two, whether that level is the larger one).

    Two levels by least squares. least: the drop of the squared error that is clear. A level has two values or more.
    """
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.bool_)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(row) != 0)))
    counts = np.diff(np.append(starts, len(values)))
    of_row = np.repeat(np.arange(len(starts)), counts)
    count, k = counts[of_row], np.arange(len(values)) - starts[of_row]
    sums = np.concatenate(([0.0], np.cumsum(values)))[:-1]
    before = sums - sums[starts][of_row]
    total = np.add.reduceat(values, starts)[of_row]
    inside = (k >= 2) & (k < count - 1)
    with np.errstate(all="ignore"):
        rise = (total - before) / (count - k) - before / k
        gain = np.where(inside, k * (count - k) / count * rise**2, -1.0)
    best = np.maximum.reduceat(gain, starts)
    is_best = np.flatnonzero((gain == best[of_row]) & (gain > least))
    at = is_best[np.unique(of_row[is_best], return_index=True)[1]]
    return at, rise[at] > 0
