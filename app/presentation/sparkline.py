"""A metric over the steps in the space of a word: an SVG path for a table cell, block characters for Markdown.

Both show the means of equal buckets of steps, scaled from the smallest to the largest mean unless ends are given. A bucket
without a value is a hole.
"""

import math
from collections.abc import Sequence
from itertools import groupby

import numpy as np

from ratioscope.arrays import Floats

BLOCKS = "▁▂▃▄▅▆▇█"
HOLE = "·"
ROUNDING = 1e-12
"""Means that differ by less, relative to their size, are equal: rounding must not look like a trend."""
WIDTH, HEIGHT = 120, 26
Values = Sequence[float | None]


def svg_path(values: Values, ends: tuple[float, float] | None = None) -> str:
    """The `d` of a path in a box of WIDTH by HEIGHT; empty where no value is known. A lone point is a short dash.

    ends: the values at the bottom and at the top of the box; a mean beyond them lies on its edge.

    >>> svg_path([1.0, None, 3.0])
    'M0 26h2M120 0h2'
    >>> svg_path([1.0, 9.0], ends=(0.0, 2.0))
    'M0 13L120 0'
    """
    places = _places(values, 60, ends)
    apart = WIDTH / max(1, len(places) - 1)
    parts = []
    for known, run in groupby(enumerate(places), key=lambda item: item[1] is not None):
        line = [(index * apart, HEIGHT * (1 - place)) for index, place in run if place is not None]
        if known:
            moves = "L".join(f"{x:.4g} {y:.3g}" for x, y in line)
            parts.append(f"M{moves}" + ("h2" if len(line) == 1 else ""))
    return "".join(parts)


def blocks(values: Values, width: int = 24) -> str:
    """One block character per bucket of steps.

    >>> blocks([0.0, 1.0, None, 2.0]), blocks([5.0, 5.0])
    ('▁▅·█', '▁▁')
    """
    steps = len(BLOCKS) - 1
    return "".join(HOLE if place is None else BLOCKS[round(place * steps)] for place in _places(values, width))


def _places(values: Values, buckets: int, ends: tuple[float, float] | None = None) -> list[float | None]:
    """Bucket means scaled to 0..1; infinities count as the largest or smallest finite mean."""
    means = _means(np.array(values, np.float64), buckets)
    known = means[np.isfinite(means)].tolist()
    low, high = ends or ((min(known), max(known)) if known else (0.0, 0.0))
    return [None if math.isnan(mean) else _place(mean, low, high) for mean in means.tolist()]


def _place(mean: float, low: float, high: float) -> float:
    span = high / 2 - low / 2  # halves, because the difference of the largest floats overflows
    flat = span <= ROUNDING * max(abs(low), abs(high))
    return float(mean > high) if flat else (min(max(mean, low), high) / 2 - low / 2) / span


def _means(values: Floats, buckets: int) -> Floats:
    """The mean of each bucket of steps; NaN for one without a value."""
    if not len(values):
        return values
    count = min(buckets, len(values))
    starts = [round(index * len(values) / count) for index in range(count)]
    known = np.add.reduceat(~np.isnan(values), starts, dtype=np.float64)
    of_bucket = np.repeat(known, np.diff([*starts, len(values)]))
    with np.errstate(invalid="ignore"):  # infinities of both signs
        # divides before it adds, so that it never overflows
        sums = np.add.reduceat(
            np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf) / np.maximum(of_bucket, 1), starts
        )
    return np.where(known > 0, sums, np.nan)
