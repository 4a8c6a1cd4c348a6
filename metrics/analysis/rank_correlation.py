"""Rank correlation of two columns with its 95% interval."""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

NORMAL_95 = 1.959963984540054
FEWEST = 4
"""Pairs from which an interval is known: its width has n - 3 below a root."""
RANK_FACTOR = 1.06
"""Variance of the transformed rank correlation times (n - 3). Fieller, Hartley, Pearson 1957."""


@dataclass(frozen=True)
class RankCorrelation:
    """Spearman's correlation of pairs, taken for independent."""

    value: float
    """In [-1, 1]."""
    low: float
    """The lower end of its interval."""
    high: float
    """The ends of the 95% interval, by Fisher's transformation; NaN for fewer than four pairs."""
    pairs: int


def rank_correlation(x: npt.ArrayLike, y: npt.ArrayLike) -> RankCorrelation | None:
    """The correlation of the pairs with two numbers. Equal values share their mean rank. None if a column has under two values.

    >>> rank_correlation([1, 2, 3], [1, 4, 9]).value
    1.0
    """
    a, b = np.asarray(x, np.float64), np.asarray(y, np.float64)
    known = ~(np.isnan(a) | np.isnan(b))
    first, second = (pl.Series(side[known]).rank().to_numpy().astype(np.float64) for side in (a, b))
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return None
    value = float(np.clip(np.corrcoef(first, second)[0, 1], -1, 1))
    if len(first) < FEWEST:
        return RankCorrelation(value, math.nan, math.nan, len(first))
    middle = math.atanh(min(max(value, -1 + 1e-15), 1 - 1e-15))
    half = NORMAL_95 * math.sqrt(RANK_FACTOR / (len(first) - 3))
    return RankCorrelation(value, math.tanh(middle - half), math.tanh(middle + half), len(first))
