"""A line behind the noise: the exponentially weighted mean of what was measured so far, whatever the distances between steps."""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
_HALVINGS = 400.0
"""Per block: weights from 1 to 2^400 are summed without overflow, and what is older than a block weighs nothing beside it."""


def smoothed(positions: Floats, values: Floats, half_life: float) -> Floats:
    """At each position the mean of the values up to it, a value `half_life` older counting half as much.

    sum_j<=i 2^((x_j - x_i) / half_life) v_j / the same sum without v: no value is given more weight for being the first.
    positions: ascending. Values that are not finite are left out, and have no mean; half_life > 0, in units of the positions.
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
        kept = float(np.exp2(last - start))
        totals = np.cumsum(v[block] / size * weights) + total * kept
        counts = np.cumsum(weights) + weight * kept
        means[block] = totals / counts * size
        total, weight, last = float(totals[-1] / weights[-1]), float(counts[-1] / weights[-1]), float(age[block[-1]])
    result[known] = means
    return result
