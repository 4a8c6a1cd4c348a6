"""Collects distributions and tails of a gap block by block; the result is the list columns of slice `all`."""

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Array, Floats, Integers, Matrix

from ..definitions.tail import SEQUENCE_TAIL, TOKEN_TAIL, K
from ..distribution import BUCKETS, LEVELS, Level, bucket_table, histogram_columns
from ..reduction import reduced
from .arrow_columns import ArrowColumn
from .loops import NUMPY_LOOPS, LogWeights, Loops, Runs

_FIRST = 1 << 13
"""The K-th of so many values leaves few of all others to choose from."""
_TAIL_OF: dict[Level, str] = {"token": TOKEN_TAIL.name, "sequence": SEQUENCE_TAIL.name}


def spread_fields() -> list[tuple[str, pa.DataType]]:
    """(name, type) of every list column."""
    kinds: tuple[pa.DataType, ...] = (
        pa.list_(pa.int16()),
        pa.list_(pa.int64()),
        pa.list_(pa.float64()),
        pa.list_(pa.float64()),
    )
    fields: list[tuple[str, pa.DataType]] = [
        pair for level in LEVELS for pair in zip(histogram_columns(level), kinds, strict=True)
    ]
    return fields + [(name, pa.list_(pa.float32())) for name in _TAIL_OF.values()]


class Spread:
    """Collects the log-weights of every group; `columns` returns their distributions and tails."""

    def __init__(self, *, tails: bool, loops: Loops = NUMPY_LOOPS) -> None:
        self._tails, self._loops = tails, loops
        self._cells: dict[Level, list[tuple[Integers, Matrix]]] = {level: [] for level in LEVELS}
        self._largest: dict[Level, list[tuple[Integers, Floats]]] = {level: [] for level in _TAIL_OF}
        self._least: dict[tuple[Level, int], float] = {}
        """(level, group) -> the least of K log-weights of the group, found in one block."""

    def add(self, level: Level, names: Integers, runs: Runs, weights: LogWeights, times: Floats | None = None) -> None:
        """Adds log-weights. A group of the runs is a place in `names`; a log-weight counts `times` (None: once).

        names: ascending. A group may be there several times; its log-weights are then added up apart from each other.
        """
        if not len(weights):
            return
        if times is None:
            occupied, *sums = self._loops.buckets(runs, weights, len(names))
        else:
            log_weight = weights.at(slice(None))
            occupied, *sums = bucket_table(runs.cells(log_weight), log_weight, len(names) * BUCKETS, times)
        cells = names[occupied // BUCKETS] * BUCKETS + occupied % BUCKETS
        self._cells[level].append((cells, np.stack([np.asarray(part, np.float64) for part in sums])))
        if self._tails and level in _TAIL_OF:
            self._largest[level].append(self._candidates(level, names, runs, weights))

    def _candidates(self, level: Level, names: Integers, runs: Runs, weights: LogWeights) -> tuple[Integers, Floats]:
        """The groups and sizes of the largest log-weights of each group, without those that K of an earlier block exceed."""
        if names[0] != names[-1]:
            group, every = names[runs.of_each], weights.at(slice(None))
            chosen = largest_of_each(group, every)
            return group[chosen], every[chosen]
        least = self._least.get((level, int(names[0])))
        if least is None and len(weights) > _FIRST:
            least = float(np.nextafter(np.partition(weights.at(slice(_FIRST)), -K)[-K], -np.inf))
        above = weights.at(slice(None) if least is None else weights.above(least))
        values = above[largest(above)]
        if len(values) == K:
            self._least[level, int(names[0])] = float(values.min())
        return np.full(len(values), names[0]), values

    def columns(self, groups: Integers) -> dict[str, ArrowColumn]:
        """The list columns of these groups (ascending)."""
        result: dict[str, ArrowColumn] = {}
        for level in LEVELS:
            result |= self._histograms(level, groups)
            if self._tails and level in _TAIL_OF:
                parts = self._largest[level]
                owner = np.concatenate([group for group, _ in parts]) if parts else np.empty(0, np.int64)
                values = np.concatenate([value for _, value in parts]) if parts else np.empty(0)
                order = np.lexsort((-values, owner))
                order = order[rank_in_group(owner[order]) < K]
                result[_TAIL_OF[level]] = _lists(values[order].astype(np.float32), _offsets(owner[order], groups))
        return result

    def _histograms(self, level: Level, groups: Integers) -> dict[str, ArrowColumn]:
        parts = self._cells[level]
        codes = np.concatenate([cells for cells, _ in parts]) if parts else np.empty(0, np.int64)
        matrix = np.concatenate([sums for _, sums in parts], axis=1) if parts else np.empty((3, 0))
        merged = reduced(matrix, codes, ("sum", "logsumexp", "logsumexp"))
        counts, weights, squares = merged.matrix
        flat = (merged.codes % BUCKETS).astype(np.int16), whole_counts(counts), weights, squares
        offsets = _offsets(merged.codes // BUCKETS, groups)
        return {name: _lists(values, offsets) for name, values in zip(histogram_columns(level), flat, strict=True)}


def whole_counts(counts: Floats) -> Integers:
    """Estimated counts rounded to whole numbers, such that no running total is off by more than a half."""
    totals: Integers = np.rint(np.cumsum(counts)).astype(np.int64)
    return totals - np.append(0, totals[:-1]) if len(totals) else totals


def largest_of_each(group: Integers, values: Floats) -> Integers:
    """Indices of the K largest values of each group, in no particular order."""
    if not len(values) or group.min() == group.max():
        return largest(values)
    order = np.lexsort((-values, group))
    return order[rank_in_group(group[order]) < K]


def largest(values: Floats) -> Integers:
    """Indices of the K largest values, in no particular order."""
    if len(values) <= K:
        return np.arange(len(values))
    if len(values) <= _FIRST:
        return np.argpartition(values, -K)[-K:]
    near = np.flatnonzero(values >= np.partition(values[:_FIRST], -K)[-K])
    return near[np.argpartition(values[near], -K)[-K:]]


def rank_in_group(group: Integers) -> Integers:
    """0, 1, 2, ... within each series of adjacent equal groups."""
    index = np.arange(len(group))
    begins = np.concatenate(([True], group[1:] != group[:-1])) if len(group) else np.empty(0, np.bool_)
    return index - np.maximum.accumulate(np.where(begins, index, 0)) if len(group) else index


def _offsets(owner: Integers, groups: Integers) -> ArrowColumn:
    """The bounds of a list for each group. owner: the group of each value, ascending."""
    bounds = np.append(np.searchsorted(owner, groups), np.searchsorted(owner, groups[-1:], side="right"))
    return pa.array(bounds.astype(np.int32))  # numpy casts in a third of Arrow's time


def _lists(values: Array, offsets: ArrowColumn) -> ArrowColumn:
    return pa.ListArray.from_arrays(offsets, pa.array(values))
