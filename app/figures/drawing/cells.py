"""Histogram buckets on an axis: neighbours joined until each cell is tall enough to be seen, with densities that compare."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.metrics.distribution import BUCKETS, EDGES, Histogram, median_size

from ...presentation.digits import digits
from .scale import PLAIN, Scale, signed_log

CELLS = 90
"""Approximate number of cells on the axis; more cells would be thinner than a line."""
OPEN_END = 0.12
"""Height of the two cells that reach to infinity and have no end of their own, in axis units."""


@dataclass(frozen=True)
class AxisCells:
    """Consecutive cells along a log-ratio axis."""

    scale: Scale
    places: Floats
    """Axis positions of the cells' edges, one more than there are cells."""
    low: Floats
    """The lower log-ratio of each cell."""
    high: Floats
    """Log-ratios at the edges of each cell; the outermost can be infinite."""
    owner: Integers
    """The cell of each bucket; -1 for buckets outside the cells."""

    @property
    def heights(self) -> Floats:
        return np.diff(self.places)

    @property
    def middles(self) -> Floats:
        """Axis positions of the middles of the cells."""
        return (self.places[1:] + self.places[:-1]) / 2

    @property
    def edges(self) -> Floats:
        """Log-ratios at the edges, one more than there are cells."""
        return np.concatenate([self.low, self.high[-1:]])

    def axis(self) -> dict[str, Any]:
        """Plotly axis settings; a few cells are ticked at their edges, which can be infinite."""
        settings = self.scale.axis(float(self.places[0]), float(self.places[-1]))
        if len(self.low) > 3:
            return settings
        return settings | {"tickvals": self.places.tolist(), "ticktext": [digits(edge) for edge in self.edges]}

    def summed(self, buckets: Integers, values: Floats) -> Floats:
        """The values of buckets, added up per cell."""
        return np.bincount(self.owner[buckets], values, len(self.low)).astype(np.float64)


def cells(buckets: Integers, counts: Integers, kept: Sequence[float] = ()) -> AxisCells:
    """Cells that cover the occupied buckets, on a signed-log axis around the typical size. There must be one bucket.

    kept: log-ratios that must lie between two cells, if they are edges of the histogram.
    """
    typical, largest = median_size(buckets, counts)
    scale = signed_log(typical, largest) if largest > 5 * typical else PLAIN
    first, last = int(buckets.min()), int(buckets.max())
    ends = np.concatenate(([-np.inf], EDGES, [np.inf]))[first : last + 2]
    places = scale.place(ends).copy()  # a plain scale returns its argument
    places[0] = places[0] if np.isfinite(places[0]) else places[1] - OPEN_END
    places[-1] = places[-1] if np.isfinite(places[-1]) else places[-2] + OPEN_END
    chosen = _far_enough(places, np.isin(np.round(ends, 12), np.round(kept, 12)))
    owner = np.full(BUCKETS, -1, np.int64)
    owner[first : last + 1] = np.searchsorted(chosen, np.arange(len(places) - 1), side="right") - 1
    return AxisCells(scale, places[chosen], ends[chosen[:-1]], ends[chosen[1:]], owner)


def common_cells(parts: Sequence[Histogram]) -> AxisCells:
    """The cells that cover the occupied buckets of all these histograms."""
    return cells(np.concatenate([part.buckets for part in parts]), np.concatenate([part.counts for part in parts]))


def _far_enough(places: Floats, wanted: Booleans) -> Integers:
    """Positions of the edges that stay: both ends, the wanted ones, and others a CELLSth of the whole apart from all."""
    least = (places[-1] - places[0]) / CELLS
    fixed = places[wanted]
    chosen = [0]
    for at in range(1, len(places) - 1):
        from_fixed = np.abs(fixed - places[at]).min(initial=np.inf)
        free = (
            places[at] - places[chosen[-1]] >= least
            and places[-1] - places[at] >= least / 2
            and from_fixed >= least / 2
        )
        if wanted[at] or free:
            chosen.append(at)
    return np.array([*chosen, len(places) - 1], np.int64)
