"""The grid on which stored log-probs lie: decimals of a text, bfloat16 or float16. It bounds what they can show."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats

ON_GRID = 0.98
"""Share of the values that lie on a grid if they were stored on it; the rest are exact zeros and roundings."""
LEAST = 50
"""Values other than 0 below which no grid is told."""
MOST_DECIMALS = 5
FINER = 0.1
"""Decimals are told from float32 values that lie so many times closer together: those of large numbers have no more digits."""


@dataclass(frozen=True)
class Grid:
    """A coarse grid of stored values."""

    name: str
    """bfloat16, float16, or such as "4 decimals"."""
    resolution: float | None
    """Largest error of a stored value, in nats; None for a grid of floats, which a policy may have computed in."""


def grid_of(values: Floats) -> Grid | None:
    """The coarsest grid on which the values lie; None if they have all digits of float32, or are too few to tell."""
    single = values[np.isfinite(values) & (values != 0)].astype(np.float32)
    if len(single) < LEAST:
        return None
    if ((single.view(np.uint32) & 0xFFFF) == 0).mean() > ON_GRID:
        return Grid("bfloat16", None)
    with np.errstate(over="ignore"):
        halves = single.astype(np.float16).astype(np.float32)
    if (halves == single).mean() > ON_GRID:
        return Grid("float16", None)
    for decimals in range(1, MOST_DECIMALS + 1):
        telling = single[np.spacing(np.abs(single)) < FINER * 10.0**-decimals]
        exact = np.round(telling.astype(np.float64), decimals).astype(np.float32)
        if len(telling) >= LEAST and (exact == telling).mean() > ON_GRID:
            return Grid(f"{decimals} decimals", 0.5 * 10.0**-decimals)
    return None


def widths(grid: Grid, values: Floats) -> Floats:
    """Distance of neighbouring grid values at each value, in nats."""
    if grid.resolution is not None:
        return np.full(len(values), 2 * grid.resolution)
    exponent = np.floor(np.log2(np.maximum(np.abs(values), 1e-9)))
    return np.asarray(2.0 ** (exponent - (7 if grid.name == "bfloat16" else 10)), np.float64)
