"""The exponentially weighted mean of a noisy series, for steps at any distances."""

import numpy as np

from ratioscope.arrays import Floats

_HALVINGS = 400.0
"""Half-lives per block: weights from 1 to 2^400 do not overflow, and a value older than a block has no weight next to it."""


def smoothed(positions: Floats, values: Floats, half_life: float) -> Floats:
    """At each position the weighted mean of the values up to it. A value counts half as much as one `half_life` later.

    sum_j<=i 2^((x_j - x_i) / half_life) v_j / sum_j<=i 2^((x_j - x_i) / half_life): the first value has no extra weight.
    positions: ascending. half_life: > 0, in units of the positions. Values that are not finite are left out; their mean is NaN.
    """
    known = np.isfinite(values)
    result = np.full(len(values), np.nan)
    if not known.any():
        return result
    x, v = positions[known].astype(np.float64), values[known].astype(np.float64)
    size = float(np.abs(v).max()) or 1.0  # huge values times huge weights would overflow
    age = (x - x[0]) / half_life
    means = np.empty(len(v))
    total = weight = last = 0.0
    for block in np.split(np.arange(len(v)), np.flatnonzero(np.diff(age // _HALVINGS)) + 1):
        start = age[block[0]]
        weights = np.exp2(age[block] - start)
        decay = float(np.exp2(last - start))
        totals = np.cumsum(v[block] / size * weights) + total * decay
        counts = np.cumsum(weights) + weight * decay
        means[block] = totals / counts * size
        total, weight, last = float(totals[-1] / weights[-1]), float(counts[-1] / weights[-1]), float(age[block[-1]])
    result[known] = means
    return result
