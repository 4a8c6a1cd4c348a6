"""Combines the columns of a matrix by code. It is the only reduction of the numpy engine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from ratioscope.arrays import Booleans, Integers, Matrix

from .metric import NEUTRAL, Combine
from .pieces import PIECE, repeated

SMALL, LARGE = 1e-250, 1e250
"""A sum of exponentials between these has neither overflowed, nor lost a term that matters by underflow."""


@dataclass(frozen=True)
class Cells:
    """Statistics of some cells. A cell is a group of tokens or sequences with one code."""

    codes: Integers
    """The code of each cell, ascending and unique."""
    matrix: Matrix
    """matrix[i, j] is statistic i of the cell codes[j]."""


def reduced(matrix: Matrix, codes: Integers, combines: Sequence[Combine]) -> Cells:
    """The columns of each code combined to one; each row is combined in its own way.

    matrix: shape (rows, elements). codes: shape (elements,), in any order. combines: how each row is combined.
    """
    if len(codes) and (codes[1:] < codes[:-1]).any():
        sorting = ascending(codes)
        matrix, codes = np.take(matrix, sorting, axis=1), codes[sorting]
    starts = first_of_each(codes)
    if len(starts) == len(codes):  # one element each
        return Cells(codes, matrix)
    result = np.empty((len(combines), len(starts)))
    for combine, rows in _rows(tuple(combines)) if len(starts) else ():
        result[rows] = _REDUCTIONS[combine](matrix[rows], starts)
    return Cells(codes[starts], result)


@cache
def _rows(combines: tuple[Combine, ...]) -> tuple[tuple[Combine, slice | list[int]], ...]:
    """(a way to combine, the rows that are combined in this way).

    A slice is a view, a list of rows copies all tokens: engines keep rows with the same combine next to each other.
    """
    found = list[tuple[Combine, slice | list[int]]]()
    for combine in NEUTRAL:
        chosen = [row for row, own in enumerate(combines) if own == combine]
        if chosen:
            is_adjacent = chosen[-1] - chosen[0] + 1 == len(chosen)
            found.append((combine, slice(chosen[0], chosen[-1] + 1) if is_adjacent else chosen))
    return tuple(found)


def ascending(codes: Integers) -> Integers:
    """Indices that sort the codes; equal codes keep their order."""
    low = codes.min()
    # numpy sorts 16-bit integers by radix: four times as fast.
    narrow = codes.max() - low < 1 << 15
    return np.argsort((codes - low).astype(np.int16) if narrow else codes, kind="stable")


def numbered(codes: Integers) -> tuple[Integers, Integers]:
    """(the distinct codes, ascending; the place of each code among them). codes: 0 or more."""
    count = int(codes.max(initial=-1)) + 1
    if count > 4 * len(codes):
        return np.unique(codes, return_inverse=True)
    present = np.zeros(count, np.bool_)  # no sort: it takes a tenth of the time
    present[codes] = True
    return np.flatnonzero(present), (np.cumsum(present) - 1)[codes]


def first_of_each(codes: Integers | Booleans) -> Integers:
    """The index at which each group of adjacent equal codes begins."""
    return np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1]))) if len(codes) else np.empty(0, np.int64)


def _sum(matrix: Matrix, starts: Integers) -> Matrix:
    return _of_rows(np.add, matrix, starts)


def _max(matrix: Matrix, starts: Integers) -> Matrix:
    return _of_rows(np.maximum, matrix, starts)


def _of_rows(function: np.ufunc, matrix: Matrix, starts: Integers) -> Matrix:
    """Each row reduced. Numpy keeps Python's lock while it reduces a matrix, and not while it reduces a row."""
    if matrix.size <= PIECE:
        return function.reduceat(matrix, starts, axis=1)
    result = np.empty((len(matrix), len(starts)))
    for row, own in zip(matrix, result, strict=True):
        function.reduceat(row, starts, out=own)
    return result


def _logsumexp(matrix: Matrix, starts: Integers) -> Matrix:
    largest = _max(matrix, starts)
    anchor = np.where(np.isfinite(largest), largest, 0.0)
    group = repeated(np.arange(len(starts)), np.diff(np.append(starts, matrix.shape[1])))
    return anchor + np.log(_sum(np.exp(matrix - np.take(anchor, group, axis=1)), starts))


_REDUCTIONS: dict[Combine, Callable[[Matrix, Integers], Matrix]] = {"sum": _sum, "max": _max, "logsumexp": _logsumexp}


def log_sums(logs: Matrix, exponentials: Matrix, starts: Integers) -> Matrix:
    """logsumexp of groups, from the exponentials of the elements where these neither overflow nor underflow."""
    sums = np.add.reduceat(exponentials, starts)
    safe = (sums > SMALL) & (sums < LARGE)
    if safe.all():
        return np.log(sums)
    return np.where(safe, np.log(sums), _logsumexp(logs[None], starts)[0])
