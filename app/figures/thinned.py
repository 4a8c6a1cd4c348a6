"""Fewer points than rows, by a rule that loses no extreme: equal buckets of rows in order, each with its min, mean and max."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
POINTS = 500
"""More points than this per line a chart on a screen cannot show."""


@dataclass(frozen=True)
class Thinned:
    """One row per bucket. `middle` is where to draw it, `first` and `last` the positions it covers; low, mean and high leave
    out NaN. unseen: of a share, how large it may be where nothing was counted."""

    middle: Floats
    first: Floats
    last: Floats
    low: Floats
    mean: Floats
    high: Floats
    error: Floats
    rows: int
    unseen: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether every row is its own bucket."""
        return self.rows == len(self.mean)

    @property
    def note(self) -> str:
        """What the reader of a thinned chart is told; empty where nothing was left out."""
        return (
            ""
            if self.exact
            else f"showing {len(self.mean):,} means of {self.rows:,} steps, each bucket's min and max shaded"
        )


def thinned(positions: Floats, values: Floats, errors: Floats | None = None, points: int = POINTS) -> Thinned:
    """At most `points` buckets of equal numbers of rows. Rows must be ordered by position.

    A bucket's mean is the plain mean of its rows; its error is their mean error (not the error of the mean: neighbouring
    steps share weights, so they are not independent).
    """
    rows = len(values)
    buckets = min(rows, points)
    edges = np.linspace(0, rows, buckets + 1).round().astype(int)
    starts = edges[:-1]
    if not rows:
        empty = np.zeros(0)
        return Thinned(empty, empty, empty, empty, empty, empty, empty, 0)
    finite = np.where(np.isfinite(values), values, np.nan)  # an infinite value gets a mark of its own, not a point
    first, last = positions[starts], positions[edges[1:] - 1]
    error = means(errors, starts) if errors is not None else np.full(buckets, np.nan)
    return Thinned((first + last) / 2, first, last, *low_mean_high(finite, starts), error, rows)


def low_mean_high(finite: Floats, starts: npt.NDArray[np.int_]) -> tuple[Floats, Floats, Floats]:
    """Min, mean and max of the values of each bucket that are not NaN; a bucket begins at each of `starts`."""
    return np.fmin.reduceat(finite, starts), means(finite, starts), np.fmax.reduceat(finite, starts)


def means(values: Floats, starts: npt.NDArray[np.int_]) -> Floats:
    """Means of the finite values of each bucket; NaN where it has none."""
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)
