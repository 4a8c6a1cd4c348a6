"""Two groups of values, and the threshold between them."""

import numpy as np

from ratioscope.arrays import Floats


def split_in_two(values: Floats) -> float:
    """The threshold that splits values into two groups with the least variance within. Otsu 1979."""
    ordered = np.sort(values)
    n, sums, k = len(ordered), np.cumsum(ordered), np.arange(1, len(ordered))
    low, high = sums[:-1] / k, (sums[-1] - sums[:-1]) / (n - k)
    best = int(np.argmax(k * (n - k) * (low - high) ** 2))
    return float((ordered[best] + ordered[best + 1]) / 2)
