"""The loops over tokens that the engine runs: in numpy, or in machine code (`compiled_engine.py`). Both give the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Array, Floats, Integers, Matrix, Reals, Singles

from ..distribution import BUCKETS, bucket_of, bucket_table
from ..pieces import PIECE, repeated
from ..reduction import Cells, first_of_each
from .numpy_program import Columns, Scattered, all_sums
from .program import Program

EdgeCounts = npt.NDArray[np.int8]

_CHUNK = 1 << 15
"""Numbers at once, so that ten passes over them stay in the processor's cache."""


def edge_counts(numbers: Singles, edges: Singles) -> EdgeCounts:
    """The number of edges that each number reaches, at most 127; -1 for infinities and NaN."""
    counts = np.empty(len(numbers), np.int8)
    with np.errstate(invalid="ignore"):
        for start in range(0, len(counts), _CHUNK):
            here, own = numbers[start : start + _CHUNK], counts[start : start + _CHUNK]
            np.subtract(np.isfinite(here).view(np.int8), 1, out=own)
            for edge in edges:
                own += (here >= edge).view(np.int8)  # numpy takes three times as long for truths
            own[here == np.inf] = -1
    return counts


Buckets = tuple[Integers, Array, Floats, Floats]
"""Occupied cells, ascending; their counts; the logarithms of their sums of weights and of squared weights."""


@dataclass(frozen=True)
class LogWeights:
    """Log-weights, as the differences of two columns of one type: nobody writes them down as float64."""

    later: Reals
    """Log-probs of the policy that comes later in the gap, shape (tokens,)."""
    earlier: Reals
    """Log-probs of the other one, of the same type."""

    @staticmethod
    def of(values: Floats) -> "LogWeights":
        """These log-weights."""
        return LogWeights(values, np.zeros_like(values))

    @property
    def sides(self) -> tuple[Reals, Reals]:
        """Both columns."""
        return self.later, self.earlier

    def __len__(self) -> int:
        return len(self.later)

    def at(self, chosen: Integers | slice) -> Floats:
        """The chosen log-weights."""
        return np.subtract(self.later[chosen], self.earlier[chosen], dtype=np.float64)

    def above(self, least: float) -> Integers:
        """Indices of the log-weights above a limit."""
        found = [np.empty(0, np.int64)]
        for first in range(0, len(self), PIECE):
            here = slice(first, first + PIECE)
            # The differences are compared in their own type first: rounding keeps the order.
            near = np.flatnonzero(self.later[here] - self.earlier[here] >= least) + first
            found.append(near[self.at(near) > least])
        return np.concatenate(found)


@dataclass(frozen=True)
class Runs:
    """Runs of adjacent log-weights of one group."""

    groups: Integers
    """The group of each run."""
    lengths: Integers
    """The number of log-weights of each."""

    @staticmethod
    def of(groups: Integers, lengths: Integers) -> "Runs":
        """Runs as long as they may be. groups: of adjacent parts; lengths: of these."""
        starts = first_of_each(groups)
        return Runs(groups[starts], np.add.reduceat(lengths, starts) if len(starts) else lengths)

    @property
    def of_each(self) -> Integers:
        """The group of each log-weight."""
        return repeated(self.groups, self.lengths)

    def cells(self, log_weight: Floats) -> Integers:
        """group * BUCKETS + bucket of each log-weight."""
        return repeated(self.groups * BUCKETS, self.lengths) + bucket_of(log_weight)


@dataclass(frozen=True)
class Loops:
    """The work of the engine on every token of a block."""

    name: str
    """The software that carries them out."""
    sums: Callable[[Program, Columns, Integers, Sequence[Scattered]], tuple[Matrix, list[Cells]]]
    """(program, columns, first token of each cell, other cells) -> as `all_sums` of `numpy_program.py`."""
    buckets: Callable[[Runs, LogWeights, int], Buckets]
    """(runs, log-weights, number of groups) -> a cell per group and bucket: group * BUCKETS + bucket."""
    edge_counts: Callable[[Singles, Singles], EdgeCounts]
    """(numbers, edges) -> as `edge_counts` of `edge_counts.py`."""
    block_tokens: int = 1 << 17
    """Tokens of a block, about. Sums are added up within blocks first, so other blocks give other last bits."""
    blocks_at_once: int = 1
    """Blocks whose tokens are given at once, which changes no bit. Numpy would hold Python's lock for long."""


def _buckets(runs: Runs, weights: LogWeights, groups: int) -> Buckets:
    log_weight = weights.at(slice(None))
    return bucket_table(runs.cells(log_weight), log_weight, groups * BUCKETS)


NUMPY_LOOPS = Loops("numpy", all_sums, _buckets, edge_counts)
