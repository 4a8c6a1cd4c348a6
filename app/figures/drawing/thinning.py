"""Fewer points than rows, without loss of an extreme: buckets of rows in order, each with its min, mean and max."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.metrics.step_holes import holes

NOWHERE: Integers = np.zeros(0, np.int64)
POINTS = 500
"""The most points of a line; a chart on a screen cannot show more."""


@dataclass(frozen=True)
class LineBuckets:
    """One row per bucket. Low, mean and high leave out NaN."""

    middle: Floats
    """The place on the axis of each bucket."""
    first: Floats
    """The first step of each bucket."""
    last: Floats
    """The last step of each bucket."""
    low: Floats
    """The smallest value of each bucket."""
    mean: Floats
    high: Floats
    error: Floats
    """The mean error of the rows. Not the error of the mean: neighbouring steps share weights, so they are not independent."""
    rows: int
    unseen: float = 0.0
    """The largest possible value of a share of which nothing was counted."""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    """The range of the metric."""
    breaks: int = 0
    """The number of buckets without rows, see `broken`."""

    @property
    def points(self) -> int:
        """The number of buckets with rows."""
        return len(self.mean) - self.breaks

    @property
    def exact(self) -> bool:
        """True if every row is its own bucket."""
        return self.rows == self.points

    @property
    def lone(self) -> Booleans:
        """Buckets whose neighbours have no value: a line alone would not show them."""
        known = np.concatenate(([False], np.isfinite(self.mean), [False]))
        lone: Booleans = known[1:-1] & ~known[:-2] & ~known[2:]
        return lone

    @property
    def note(self) -> str:
        """The note under a thinned chart; empty if every row is its own bucket."""
        if self.exact:
            return ""
        return f"showing {self.points:,} means of {self.rows:,} steps, each bucket's min and max shaded"


def thinned_steps(steps: Floats, values: Floats, errors: Floats | None = None, points: int = POINTS) -> LineBuckets:
    """`thinned` rows of steps. No bucket reaches across steps that are missing on record; the line is `broken` there."""
    return broken(thinned(steps, values, errors, points, cuts=_seen(steps) + 1), steps)


def thinned(
    positions: Floats, values: Floats, errors: Floats | None = None, points: int = POINTS, *, cuts: Integers = NOWHERE
) -> LineBuckets:
    """At most `points` buckets of equal numbers of rows, and one more for each of the rows `cuts`, where a bucket begins.

    Rows must be ordered by position.
    """
    rows = len(values)
    starts = np.union1d(np.linspace(0, rows, min(rows, points) + 1).round().astype(int), cuts)[:-1]
    return _bucketed(positions, values, errors, starts)


def grid(positions: Sequence[Floats], cells: int) -> Floats | None:
    """Edges of equal cells over the positions of several lines; None if no line has more rows than `cells`."""
    if max((len(x) for x in positions), default=0) <= cells:
        return None
    known = np.concatenate(positions)
    return np.linspace(float(known.min()), float(known.max()), cells + 1)


def gridded(x: Floats, steps: Floats, values: Floats, errors: Floats, edges: Floats | None) -> LineBuckets:
    """A bucket per occupied cell of the grid; x ascending. Without edges every row is its own bucket.

    One grid for several lines: a pointer at one place then shows the same steps of all lines.
    """
    if edges is None:
        return _bucketed(steps, values, errors, np.arange(len(x)), x)
    cell = np.clip(np.searchsorted(edges, x, side="right") - 1, 0, len(edges) - 2)
    starts = np.flatnonzero(np.diff(cell, prepend=-1))
    return _bucketed(steps, values, errors, starts, ((edges[:-1] + edges[1:]) / 2)[cell[starts]])


def _bucketed(
    steps: Floats, values: Floats, errors: Floats | None, starts: npt.NDArray[np.int_], middles: Floats | None = None
) -> LineBuckets:
    """A bucket begins at each of `starts`. middles: the places of the buckets, else the middle of their steps."""
    finite = np.where(np.isfinite(values), values, np.nan)  # an infinite value gets a mark of its own, not a point
    first, last = steps[starts], steps[np.append(starts, len(steps))[1:] - 1]
    return LineBuckets(
        (first + last) / 2 if middles is None else middles,
        first,
        last,
        np.fmin.reduceat(finite, starts),
        means(finite, starts),
        np.fmax.reduceat(finite, starts),
        np.full(len(starts), np.nan) if errors is None else means(errors, starts),
        len(values),
    )


def broken(drawn: LineBuckets, steps: Floats) -> LineBuckets:
    """The same with a bucket without rows wherever steps are missing on record. steps: those of all rows."""
    at = np.flatnonzero(np.isin(drawn.last, steps[_seen(steps)])) + 1
    at = at[at < len(drawn.last)]
    if not len(at):
        return drawn
    between = (drawn.last[at - 1] + drawn.first[at]) / 2
    places = {"first": between, "last": between, "middle": (drawn.middle[at - 1] + drawn.middle[at]) / 2}
    names = ("middle", "first", "last", "low", "mean", "high", "error")
    rows: dict[str, Any] = {name: np.insert(getattr(drawn, name), at, places.get(name, np.nan)) for name in names}
    return replace(drawn, **rows, breaks=len(at))


def line_and_marks(drawn: LineBuckets, size: float, *, all_marked: bool) -> dict[str, Any]:
    """Plotly's mode of a line, and the sizes of its marks: one at every point, or where a line alone would show nothing."""
    if all_marked or not drawn.lone.any():
        return {"mode": "lines+markers" if all_marked else "lines", "marker_size": size}
    return {"mode": "lines+markers", "marker_size": np.where(drawn.lone, size, 0.0)}


def _seen(steps: Floats) -> Integers:
    """The holes that are wide enough to be seen."""
    at = holes(steps)
    return at[np.diff(steps)[at] * POINTS > np.ptp(steps)] if len(at) else at


def means(values: Floats, starts: npt.NDArray[np.int_]) -> Floats:
    """Means of the finite values of each bucket; NaN where it has none."""
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)
