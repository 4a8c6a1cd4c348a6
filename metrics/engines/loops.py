"""The loops over tokens that the engine runs: in numpy, or in machine code (`compiled_engine.py`). Both give the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ratioscope.arrays import Array, Floats, Integers, Matrix

from ..distribution import BUCKETS, bucket_of, bucket_table
from ..reduction import Cells
from .numpy_program import Columns, Scattered, all_sums
from .program import Program

Buckets = tuple[Integers, Array, Floats, Floats]
"""Occupied cells, ascending; their counts; the logarithms of their sums of weights and of squared weights."""


@dataclass(frozen=True)
class Loops:
    """The work of the engine on every token of a block."""

    name: str
    """The software that carries them out."""
    sums: Callable[[Program, Columns, Integers, Sequence[Scattered]], tuple[Matrix, list[Cells]]]
    """(program, columns, first token of each cell, other cells) -> as `all_sums` of `numpy_program.py`."""
    buckets: Callable[[Integers, Floats, int], Buckets]
    """(group of each log-weight, log-weights, number of groups) -> a cell per group and bucket: group * BUCKETS + bucket."""
    block_tokens: int = 1 << 17
    """Tokens of a block, about. Sums are added up within blocks first, so other blocks give other last bits."""


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    return bucket_table(group * BUCKETS + bucket_of(log_weight), log_weight, groups * BUCKETS)


NUMPY_LOOPS = Loops("numpy", all_sums, _buckets)
