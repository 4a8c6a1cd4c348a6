"""Ranks of entries among those with the same code."""

import numpy as np

from ratioscope.arrays import Integers


def rank_among_equals(codes: Integers) -> Integers:
    """For each entry, how many entries before it have the same code.

    >>> rank_among_equals(np.array([5, 7, 5, 5])).tolist()
    [0, 0, 1, 2]
    """
    order, places = np.argsort(codes, kind="stable"), np.arange(len(codes))
    begins = np.diff(codes[order], prepend=codes[order][:1] - 1) != 0
    rank = np.empty(len(codes), np.int64)
    rank[order] = places - np.maximum.accumulate(np.where(begins, places, 0))
    return rank
