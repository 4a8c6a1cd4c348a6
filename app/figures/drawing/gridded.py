"""Lines of several runs on one grid, so that what is hovered at one place is of the same steps in all of them."""

from collections.abc import Sequence

import numpy as np

from .thinned import Floats, Thinned, low_mean_high, means


def grid(positions: Sequence[Floats], cells: int) -> Floats | None:
    """Edges of equal cells over all positions; None where no line has more than `cells`, so that each step is drawn."""
    if max((len(x) for x in positions), default=0) <= cells:
        return None
    known = np.concatenate(positions)
    return np.linspace(float(known.min()), float(known.max()), cells + 1)


def gridded(x: Floats, steps: Floats, values: Floats, errors: Floats, edges: Floats | None) -> Thinned:
    """Mean, min and max of the finite values in each cell of the grid; x ascending. Without edges, the steps as they are.

    A cell's error is the mean of its steps' errors: neighbouring steps share weights, so theirs is not divided by their number.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    if edges is None or not len(x):
        return Thinned(x, steps, steps, finite, finite, finite, np.where(np.isfinite(errors), errors, np.nan), len(x))
    cell = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    starts = np.flatnonzero(np.concatenate(([True], np.diff(cell) > 0)))
    ends = np.concatenate((starts[1:], [len(x)])) - 1
    middles = (edges[:-1] + edges[1:]) / 2
    first, last = steps[starts], steps[ends]
    return Thinned(middles[cell[starts]], first, last, *low_mean_high(finite, starts), means(errors, starts), len(x))
