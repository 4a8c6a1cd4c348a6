"""Histograms of statistics tables, as the tests of distributions read them."""

from collections.abc import Mapping, Sequence

import numpy as np

from ratioscope.metrics.distribution import Histogram, Level, histogram_columns


def from_row(row: Mapping[str, Sequence[float] | None], level: Level = "token") -> Histogram:
    """The histogram of a row of a statistics table; empty if the row has none."""
    parts = [row.get(name) or () for name in histogram_columns(level)]
    buckets, counts = (np.asarray(part, np.int64) for part in parts[:2])
    weights, squares = (np.asarray(part, np.float64) for part in parts[2:])
    return Histogram(buckets, counts, weights, squares)
