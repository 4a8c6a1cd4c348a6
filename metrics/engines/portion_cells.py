"""The cells of each slice of a portion, from the sums of its sequences."""

from collections.abc import Iterator, Sequence

import numpy as np

from ratioscope.arrays import Codes, Floats, Integers, Matrix

from ..reduction import Cells, numbered, reduced
from .level_statistics import LevelStatistics, Order
from .loops import Loops
from .numpy_program import Columns, MatrixColumns, Scattered
from .portion import PortionSums, together
from .program import TIMES, cluster_program
from .slices import SliceCodes


def portion_cells(
    gap: str,
    sums: PortionSums,
    group: Integers,
    slices: Sequence[tuple[SliceCodes, Codes]],
    levels: LevelStatistics,
    loops: Loops,
) -> Iterator[Cells]:
    """The cells of each slice, coded by group * number of keys + code; a cell of several blocks is there once for each.

    group: of each sequence. slices: with the codes of these sequences, which a slice by token does not need.
    """
    for piece, codes in slices:
        if piece.by_token:
            yield _token_cells(sums, piece, group, levels, loops, gap)
        else:
            order, blocks = statistics_of_cells(levels, piece), sums.blocks
            matrix = _weighted(sums.sequences, order, sums.stands_for)
            cell = group * len(piece.keys) + codes
            if (codes < 0).any():
                chosen = np.flatnonzero(codes >= 0)
                matrix, cell, blocks = matrix[:, chosen], cell[chosen], blocks[chosen]
            yield _by_block(matrix, cell, blocks, order)


def statistics_of_cells(levels: LevelStatistics, piece: SliceCodes) -> Order:
    """The statistics that the cells of a slice have."""
    return levels.of_tokens if piece.by_token else levels.of_sequences


def merged(cells: Sequence[Cells], order: Order) -> Cells:
    """Each cell once."""
    every = together(cells)
    return reduced(every.matrix, every.codes, order.combines)


def _token_cells(
    sums: PortionSums, piece: SliceCodes, group: Integers, levels: LevelStatistics, loops: Loops, gap: str
) -> Cells:
    """Sums are added up within blocks first, so that they do not depend on what a portion is."""
    width, blocks = len(piece.keys), int(sums.blocks[-1]) + 1 if len(sums.blocks) else 1
    pairs = sums.scattered[piece.name] if piece.name in sums.scattered else _contiguous(sums, piece, levels)
    sequence = pairs.codes // width
    keys = group[sequence] * width + pairs.codes % width
    columns: Columns = MatrixColumns(levels.of_parts.names, pairs.matrix)
    if sums.stands_for is not None:
        times = sums.stands_for[sequence]
        columns = {**columns, **dict(zip(TIMES, (times, np.log(times)), strict=True))}
    program = cluster_program(gap, weighted=sums.stands_for is not None)
    names, cells = numbered(keys * blocks + sums.blocks[sequence])
    start = np.zeros(min(len(cells), 1), np.int64)
    _, (found,) = loops.sums(program, columns, start, [Scattered(cells, start, len(names))])
    return Cells(names // blocks, found.matrix)


def _contiguous(sums: PortionSums, piece: SliceCodes, levels: LevelStatistics) -> Cells:
    """Statistics of each (sequence, code), coded by sequence * number of keys + code, from those of the segments."""
    values, sequence, code = sums.segments.matrix, sums.segments.codes, sums.codes[piece.name]
    if (code < 0).any():
        chosen = np.flatnonzero(code >= 0)
        values, sequence, code = np.take(values, chosen, axis=1), sequence[chosen], code[chosen]
    return reduced(values, sequence * len(piece.keys) + code, levels.of_parts.combines)


def _by_block(matrix: Matrix, codes: Integers, blocks: Integers, order: Order) -> Cells:
    """The cells of each block: sums are added up within blocks first, so that they do not depend on what a portion is."""
    count = int(blocks[-1]) + 1 if len(blocks) else 1
    cells = reduced(matrix, codes * count + blocks, order.combines)
    return Cells(cells.codes // count, cells.matrix)


def _weighted(matrix: Matrix, order: Order, stands_for: Floats | None) -> Matrix:
    """Statistics of sequences, each counted as often as the number of rows that it represents."""
    if stands_for is None:
        return matrix
    by = {
        "sum": lambda row: row * stands_for,
        "max": lambda row: row,
        "logsumexp": lambda row: row + np.log(stands_for),
    }
    square = stands_for * stands_for
    rows = [
        row * square if s.level == "cluster" else by[s.combine](row)
        for s, row in zip(order.statistics, matrix, strict=True)
    ]
    return np.stack(rows)
