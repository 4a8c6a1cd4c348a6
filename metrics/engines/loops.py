"""The loops over tokens that the engine runs: in numpy, or in machine code (`compiled_engine.py`). Both give the same bits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ..distribution import BUCKETS, bucket_of, bucket_table
from ..reduction import Integers, Matrix, ascending, first_of_each
from .numpy_program import Columns, cell_sums
from .program import Program

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.integer[Any]]
Buckets = tuple[Integers, npt.NDArray[Any], Floats, Floats]
"""Occupied cells, ascending; their counts; the logarithms of their sums of weights and of squared weights."""
Order = tuple[Integers, Integers, Integers]
"""Indices that sort cells, where equal cells keep their order; the occupied cells; the first index of each."""
Partition = tuple[Integers, Integers | None]
"""Cells of tokens, each within one sequence, ascending: the first token of each; where these tokens are in the columns, or None
if they are in their order."""


@dataclass(frozen=True)
class Loops:
    """The work of the engine on every token of a block."""

    name: str
    """The software that carries them out."""
    sums: Callable[[Program, Columns, Sequence[Partition]], list[Matrix]]
    """(program, columns, partitions) -> the statistics of the cells of each partition."""
    order: Callable[[Integers, Codes, int], Order]
    """(rows, codes below a width, this width) -> the order of the cells row * width + code."""
    buckets: Callable[[Integers, Floats, int], Buckets]
    """(group of each log-weight, log-weights, number of groups) -> a cell per group and bucket: group * BUCKETS + bucket."""
    block_tokens: int = 1 << 17
    """Tokens of a block, about. Sums are added up within blocks first, so other blocks give other last bits."""


def _order(rows: Integers, codes: Codes, width: int) -> Order:
    cells = rows * width
    cells += codes
    order = ascending(cells) if len(cells) else cells
    cells = cells[order]
    starts = first_of_each(cells)
    return order, cells[starts], starts


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    return bucket_table(group * BUCKETS + bucket_of(log_weight), log_weight, groups * BUCKETS)


def _sums(program: Program, columns: Columns, partitions: Sequence[Partition]) -> list[Matrix]:
    return [cell_sums(program, columns, starts, places) for starts, places in partitions]


NUMPY_LOOPS = Loops("numpy", _sums, _order, _buckets)
