"""Fewer points than rows, by a rule that loses no extreme: equal buckets of rows in order, each with its min, mean and max."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ratioscope.metrics.step_holes import holes

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]
NOWHERE: Integers = np.zeros(0, np.int64)
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
    bounds: tuple[float, float] = (-np.inf, np.inf)
    """Of the metric: nothing lies beyond them."""
    breaks: int = 0
    """Buckets of nothing, see `broken`."""

    @property
    def points(self) -> int:
        """Buckets of rows."""
        return len(self.mean) - self.breaks

    @property
    def exact(self) -> bool:
        """Whether every row is its own bucket."""
        return self.rows == self.points

    @property
    def lone(self) -> Bools:
        """Buckets whose neighbours have no value: a line alone would not show them."""
        known = np.concatenate(([False], np.isfinite(self.mean), [False]))
        found: Bools = known[1:-1] & ~known[:-2] & ~known[2:]
        return found

    @property
    def note(self) -> str:
        """What the reader of a thinned chart is told; empty where nothing was left out."""
        return (
            ""
            if self.exact
            else f"showing {self.points:,} means of {self.rows:,} steps, each bucket's min and max shaded"
        )


def thinned_steps(steps: Floats, values: Floats, errors: Floats | None = None, points: int = POINTS) -> Thinned:
    """`thinned` rows of steps, none of whose buckets reaches across steps that are missing on record, `broken` there."""
    return broken(thinned(steps, values, errors, points, cuts=_seen(steps) + 1), steps)


def thinned(
    positions: Floats, values: Floats, errors: Floats | None = None, points: int = POINTS, *, cuts: Integers = NOWHERE
) -> Thinned:
    """At most `points` buckets of equal numbers of rows, and one more for each of the rows `cuts`, where a bucket begins.

    Rows must be ordered by position.
    A bucket's mean is the plain mean of its rows; its error is their mean error (not the error of the mean: neighbouring
    steps share weights, so they are not independent).
    """
    rows = len(values)
    buckets = min(rows, points)
    edges = np.union1d(np.linspace(0, rows, buckets + 1).round().astype(int), cuts)
    starts = edges[:-1]
    if not rows:
        empty = np.zeros(0)
        return Thinned(empty, empty, empty, empty, empty, empty, empty, 0)
    finite = np.where(np.isfinite(values), values, np.nan)  # an infinite value gets a mark of its own, not a point
    first, last = positions[starts], positions[edges[1:] - 1]
    error = means(errors, starts) if errors is not None else np.full(len(starts), np.nan)
    return Thinned((first + last) / 2, first, last, *low_mean_high(finite, starts), error, rows)


def broken(drawn: Thinned, steps: Floats) -> Thinned:
    """The same with a bucket of nothing wherever steps are missing on record. steps: those of all rows."""
    at = np.flatnonzero(np.isin(drawn.last, steps[_seen(steps)])) + 1
    at = at[at < len(drawn.last)]
    if not len(at):
        return drawn
    between = (drawn.last[at - 1] + drawn.first[at]) / 2
    places = {"first": between, "last": between, "middle": (drawn.middle[at - 1] + drawn.middle[at]) / 2}
    names = ("middle", "first", "last", "low", "mean", "high", "error")
    rows: dict[str, Any] = {name: np.insert(getattr(drawn, name), at, places.get(name, np.nan)) for name in names}
    return replace(drawn, **rows, breaks=len(at))


def line_and_marks(drawn: Thinned, size: float, *, all_marked: bool) -> dict[str, Any]:
    """Plotly's mode of a line, and the sizes of its marks: one at every point, or where a line alone would show nothing."""
    if all_marked or not drawn.lone.any():
        return {"mode": "lines+markers" if all_marked else "lines", "marker_size": size}
    return {"mode": "lines+markers", "marker_size": np.where(drawn.lone, size, 0.0)}


def _seen(steps: Floats) -> Integers:
    """The holes that are wide enough to be seen."""
    at = holes(steps)
    return at[np.diff(steps)[at] * POINTS > np.ptp(steps)] if len(at) else at


def low_mean_high(finite: Floats, starts: npt.NDArray[np.int_]) -> tuple[Floats, Floats, Floats]:
    """Min, mean and max of the values of each bucket that are not NaN; a bucket begins at each of `starts`."""
    return np.fmin.reduceat(finite, starts), means(finite, starts), np.fmax.reduceat(finite, starts)


def means(values: Floats, starts: npt.NDArray[np.int_]) -> Floats:
    """Means of the finite values of each bucket; NaN where it has none."""
    known = np.isfinite(values)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    return np.where(counts > 0, sums / np.where(counts > 0, counts, 1.0), np.nan)
