"""Ranks among equals, two groups of values, and a factor between two gaps in words.

A gap of 0 beside another one has no factor, and few sequences have no error.
"""

import numpy as np

from ratioscope.arrays import Floats, Integers


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


def split_in_two(values: Floats) -> float:
    """The threshold that splits values into two groups with the least variance within. Otsu 1979."""
    ordered = np.sort(values)
    n, sums, k = len(ordered), np.cumsum(ordered), np.arange(1, len(ordered))
    low, high = sums[:-1] / k, (sums[-1] - sums[:-1]) / (n - k)
    best = int(np.argmax(k * (n - k) * (low - high) ** 2))
    return float((ordered[best] + ordered[best + 1]) / 2)


LARGEST = 1e6
"""A larger factor is a division by almost nothing: its digits say nothing."""


def times(factor: float) -> str:
    """A factor in words.

    >>> times(7.123), times(12345.0), times(5.2e21)
    ('7.12 times', '12,300 times', 'more than 1,000,000 times')
    """
    return f"{float(f'{factor:.3g}'):,g} times" if factor < LARGEST else f"more than {LARGEST:,.0f} times"


def error_words(error: float) -> str:
    """The standard error of the log of a factor in words, in brackets.

    >>> error_words(0.12), error_words(2.0), error_words(np.inf)
    ('(± 12%)', '(within a factor of 7.4)', '(too few sequences to know its error)')
    """
    if error < 1:
        return f"(± {100 * error:.0f}%)"
    return (
        f"(within a factor of {np.exp(error):.2g})" if error < np.log(100) else "(too few sequences to know its error)"
    )


def gap_of(words: str, factor: float, error: float) -> str:
    """The gap of some tokens against that of the others, in words. words: a plural subject."""
    if not factor > 1 / LARGEST:
        return f"{words} have no gap"
    if factor >= LARGEST:
        return f"{words} have a gap, and the others have almost none"
    return f"{words} have {times(factor)} {error_words(error)} the gap of the others"
