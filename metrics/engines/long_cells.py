"""Sums of cells of any length: long ones in parts, so that neither memory nor Python's lock is taken for a whole sequence."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ratioscope.arrays import Integers, Matrix

from ..pieces import places, repeated
from ..reduction import Cells, reduced
from .loops import Loops
from .numpy_program import Columns, Scattered
from .program import Program

LONGEST = 1 << 16
"""Tokens of a cell that are added up at once: the registers of a program for so many take about 10 MB."""


def sums_of_cells(
    loops: Loops, program: Program, columns: Columns, starts: Integers, scattered: Sequence[Scattered]
) -> tuple[Matrix, list[Cells]]:
    """As `loops.sums`. The parts of a cell with more than LONGEST tokens are combined in their order."""
    lengths = np.diff(np.append(starts, len(columns[program.columns[0]])))
    if lengths.max(initial=0) <= LONGEST:
        return loops.sums(program, columns, starts, scattered)
    parts = np.maximum(1, -(-lengths // LONGEST))
    cell = repeated(np.arange(len(starts)), parts)
    others = [replace(each, first=each.first[cell]) for each in scattered]
    matrix, found = loops.sums(program, columns, starts[cell] + places(parts) * LONGEST, others)
    return reduced(matrix, cell, [program.combines[row] for row in program.rows]).matrix, found
