"""The loops over tokens that the engine runs: in numpy, or in machine code (`compiled_engine.py`). Both give the same numbers."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..distribution import BUCKETS, bucket_of, bucket_table
from ..reduction import Integers, Matrix, ascending
from .numpy_program import Columns, cell_sums
from .program import Program

Floats = npt.NDArray[np.float64]
Buckets = tuple[Integers, npt.NDArray[Any], Floats, Floats]
"""Occupied cells, ascending; their counts; the logarithms of their sums of weights and of squared weights."""


@dataclass(frozen=True)
class Loops:
    """The work of the engine on every token of a block."""

    name: str
    """The software that carries them out. Loops of one name give equal bits on machines of one kind."""
    block_tokens: int
    """Tokens of a block, about."""
    sound_apart: bool
    """True if blocks of finite numbers have a program of their own."""
    cell_sums: Callable[[Program, Columns, Integers], Matrix]
    """(program, columns, first token of each cell) -> the statistics of each cell of adjacent tokens."""
    order: Callable[[Integers, int], Integers]
    """(cells, number of cells) -> indices that sort them; equal cells keep their order."""
    buckets: Callable[[Integers, Floats, int], Buckets]
    """(group of each log-weight, log-weights, number of groups) -> a cell per group and bucket: group * BUCKETS + bucket."""


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    return bucket_table(group * BUCKETS + bucket_of(log_weight), log_weight, groups * BUCKETS)


NUMPY_LOOPS = Loops("numpy", 1 << 15, True, cell_sums, lambda cells, _: ascending(cells), _buckets)
"""A block of 32,768 tokens: smaller ones cost more calls, larger ones leave the processor's second cache."""
