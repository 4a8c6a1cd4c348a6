"""The engine's loops in machine code. Importing this file imports numba, so no trainer does."""

from collections.abc import Callable
from typing import Any

import numba  # pyright: ignore[reportMissingImports]
import numpy as np

from ..distribution import UPPER, lowest_buckets
from ..reduction import LARGE, SMALL, Integers, Matrix, ascending
from .compiled_loops import bucket_sums, grouped
from .loops import NUMPY_LOOPS, Buckets, Floats, Loops
from .numpy_program import Columns
from .program import Program

Kernel = Callable[..., None]
"""The function of `program_text`, compiled."""


def compiled_loops(kernel_of: Callable[[Program], Kernel | None]) -> Loops:
    """The loops. kernel_of: compiles the text of a program; None where it cannot.

    A block is large, because no intermediate result is stored.
    """

    def cell_sums(program: Program, columns: Columns, starts: Integers) -> Matrix:
        kernel = kernel_of(program)
        if kernel is None:
            return NUMPY_LOOPS.cell_sums(program, columns, starts)
        length = len(columns[program.columns[0]])
        given = [np.ascontiguousarray(columns[name], np.float32) for name in program.columns]
        sums = np.empty((len(starts), len(program.combines)))
        kernel(np.append(starts, length), sums, *given)
        logs = np.array([combine == "logsumexp" for combine in program.combines])
        beyond = ~((sums[:, logs] > SMALL) & (sums[:, logs] < LARGE)).all(axis=1)
        sums[:, logs] = np.log(sums[:, logs])
        result = sums.T[list(program.rows)]
        if beyond.any() and logs.any():
            # A sum of exponentials overflowed or vanished, which numpy's loops know how to avoid.
            lengths = np.diff(np.append(starts, length))
            chosen = np.repeat(beyond, lengths)
            ends = np.cumsum(lengths[beyond])
            part = {name: columns[name][chosen] for name in program.columns}
            result[:, beyond] = NUMPY_LOOPS.cell_sums(program, part, ends - lengths[beyond])
        return result

    return Loops(f"numba {numba.__version__}", 1 << 17, False, cell_sums, _order, _buckets)


def _order(cells: Integers, count: int) -> Integers:
    if count > 4 * len(cells):  # most of them are empty, such as those of a slice by token id
        return ascending(cells)
    order: Integers = grouped(cells, count)
    return order


def _buckets(group: Integers, log_weight: Floats, groups: int) -> Buckets:
    lowest, nearby = lowest_buckets()
    sums: Any = bucket_sums(group, log_weight, groups, lowest, UPPER, nearby)
    occupied = np.flatnonzero(sums[:, 0])
    found = sums[occupied]
    if not ((found[:, 1:] > SMALL) & (found[:, 1:] < LARGE)).all():
        return NUMPY_LOOPS.buckets(group, log_weight, groups)
    return occupied, found[:, 0].astype(np.int64), np.log(found[:, 1]), np.log(found[:, 2])
