"""Calls of numpy in pieces: numpy keeps Python's lock until such a call returns, and a trainer's thread may wait for it."""

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Floats, Integers

PIECE = 1 << 17
"""Numbers that one call makes or adds: numpy takes 0.1 to 0.4 ms for them."""
T = TypeVar("T")


def portions(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """So many items at a time, in their order."""
    return (items[start : start + size] for start in range(0, len(items), size))


def repeated(values: npt.NDArray[Any], counts: Integers) -> npt.NDArray[Any]:
    """Each value as often as its count, as np.repeat returns them."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    if total <= PIECE:
        return np.repeat(values, counts)
    result = np.empty(total, values.dtype)
    for start in range(0, total, PIECE):
        stop = min(start + PIECE, total)
        first, last = np.searchsorted(ends, (start, stop - 1), side="right")
        within = np.minimum(ends[first : last + 1], stop)
        result[start:stop] = np.repeat(values[first : last + 1], np.diff(within, prepend=start))
    return result


def places(counts: Integers) -> Integers:
    """0, 1, 2, ... within each group; counts: the number of elements of each."""
    begins: Integers = np.cumsum(counts) - counts
    found: Integers = np.arange(int(counts.sum())) - repeated(begins, counts)
    return found


def totals(cells: Integers, weights: Floats | None, count: int) -> Array:
    """The sum of weights of each cell below `count`, added one after the other; without weights the number of its elements."""
    result = np.bincount(cells[:PIECE], None if weights is None else weights[:PIECE], count)
    for first in range(PIECE, len(cells), PIECE):
        here = slice(first, first + PIECE)
        if weights is None:
            result += np.bincount(cells[here], minlength=count)
        else:
            np.add.at(result, cells[here], weights[here])
    return result
