"""A portion: blocks of adjacent sequences, and the sums of their tokens.

Token formulas are evaluated block by block, so that tokens stay in the processor's cache. All that follows works on numbers of
sequences, and is done once for a portion: a call of numpy costs as much for a thousand numbers as for ten. Cells of any length
are summed in parts, so that neither memory nor Python's lock is taken for a whole sequence.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Codes, Floats, Integers, Matrix

from ..columns import SequenceColumns, sequence_columns
from ..metric import NEUTRAL
from ..pieces import places, repeated
from ..reduction import Cells, numbered, reduced
from .arrow_columns import GapRows
from .block_tokens import Block, Tokens, blocks, changes
from .level_statistics import LevelStatistics, Order
from .loops import Loops
from .numpy_program import Columns, MatrixColumns, Scattered
from .program import APART, TIMES, Program, cluster_program, neighbour_programs
from .slices import CONTIGUOUS, SliceCodes

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


def neighbour_sums(tokens: Tokens, begins: Integers, statistics: int, loops: Loops) -> Matrix:
    """Shape (statistics, sequences). begins: the first token of each sequence that has one. statistics: how many there are."""
    if not statistics:
        return np.empty((0, len(begins)))
    if tokens.has_pairs:
        return sums_of_cells(loops, tokens.program(whole=True), tokens.columns, begins, ())[0]
    result = np.zeros((statistics, len(begins)))
    lengths = tokens.lengths[tokens.lengths > 0]
    for distance, (program, at) in neighbour_programs(tokens.gap).items():
        have = np.flatnonzero(lengths > distance)
        if len(have):
            result[np.ix_(np.array(at), have)] = _sums(tokens, begins[have], lengths[have], distance, program, loops)
    return result


def _sums(tokens: Tokens, begins: Integers, lengths: Integers, distance: int, program: Program, loops: Loops) -> Matrix:
    """The sums over the pairs of tokens so far apart, of sequences that are longer than the distance.

    Their columns are moved against each other. Behind the pairs of a sequence come those of two sequences, which are left out.
    """
    first, behind = slice(None, -distance), slice(distance, None)
    columns = dict(zip(APART, (tokens.columns[n][part] for part in (first, behind) for n in APART[:2]), strict=True))
    bounds = np.stack((begins, begins + lengths - distance), axis=1).reshape(-1)
    within = bounds[bounds < int(tokens.lengths.sum()) - distance]
    return sums_of_cells(loops, program, columns, within, ())[0][:, ::2]


_SEQUENCES = 1024
"""Sequences of a portion, about: fewer cost more calls, and the sums of many more would not stay in memory."""


def portions(rows: GapRows, tokens: int) -> Iterator[list[Block]]:
    """Blocks of about so many tokens, by portions."""
    portion: list[Block] = []
    for block in blocks(rows, tokens):
        portion.append(block)
        if block.last - portion[0].first >= _SEQUENCES:
            yield portion
            portion = []
    if portion:
        yield portion


@dataclass(frozen=True)
class BlockSums:
    """The sums of the tokens of a block. Its sequences are counted from the first of the portion."""

    segments: Cells
    """The sums of segments, by sequence. A segment: adjacent tokens of a sequence with one code in each contiguous slice."""
    codes: Mapping[str, Codes]
    """Name of a contiguous slice -> the code of each segment."""
    whole: Matrix
    """Statistics that relate tokens to their neighbours, of each sequence that has a token."""
    scattered: Mapping[str, Cells]
    """Name of any other slice by token -> statistics of each (sequence, code), coded by sequence * number of keys + code."""


@dataclass(frozen=True)
class PortionSums:
    """The sums of a portion."""

    blocks: Integers
    """The number of the block of each sequence."""
    segments: Cells
    codes: Mapping[str, Codes]
    scattered: Mapping[str, Cells]
    """Slice by token whose tokens do not lie side by side -> the sums of its cells."""
    sequences: Matrix
    """All statistics of each sequence, with or without a token, shape (statistics, sequences)."""
    columns: SequenceColumns
    stands_for: Floats | None
    """Number of sequences that each sequence represents; None: one each."""


def block_sums(
    tokens: Tokens, first: int, slices: Sequence[SliceCodes], levels: LevelStatistics, loops: Loops
) -> BlockSums:
    """The token formulas of a block, evaluated and summed. first: the number of its first sequence within the portion."""
    by_token = [piece for piece in slices if piece.by_token]
    contiguous = [piece.name for piece in by_token if piece.name in CONTIGUOUS]
    scattered = [piece for piece in by_token if piece.name not in CONTIGUOUS]
    starts = changes(tokens.begins, [tokens.codes[name] for name in contiguous]) if contiguous else tokens.begins
    cells = [_cells(tokens, starts, piece) for piece in scattered]
    sums, others = sums_of_cells(loops, tokens.program(whole=False), tokens.columns, starts, [own for own, _ in cells])
    return BlockSums(
        Cells(tokens.sequence_at(starts) + first, sums),
        {name: tokens.codes[name][starts] for name in contiguous},
        neighbour_sums(tokens, tokens.begins, len(levels.whole), loops),
        {
            piece.name: _named(names[own.codes], first * len(piece.keys), own.matrix)
            for piece, (_, names), own in zip(scattered, cells, others, strict=True)
        },
    )


def portion_sums(
    rows: GapRows, portion: Sequence[Block], of_blocks: Sequence[BlockSums], levels: LevelStatistics
) -> PortionSums:
    """The sums of the blocks side by side, and the formulas of their sequences."""
    first, last = portion[0].first, portion[-1].last
    segments = together([each.segments for each in of_blocks])
    order, present = levels.of_sequences, reduced(segments.matrix, segments.codes, levels.of_parts.combines)
    sums = np.empty((len(order.names), last - first))
    if len(present.codes) < last - first:
        sums[: len(levels.token)] = np.array([[NEUTRAL[combine]] for combine in order.combines[: len(levels.token)]])
    sums[: len(levels.sliced), present.codes] = present.matrix
    sums[len(levels.sliced) : len(levels.token), present.codes] = np.concatenate(
        [each.whole for each in of_blocks], axis=1
    )
    named = dict(zip(order.names, sums, strict=True))
    whole = sequence_columns(named, np)
    for row, statistic in zip(sums[len(levels.token) :], (*levels.cluster, *levels.sequence), strict=True):
        row[:] = statistic.formula(whole if statistic.level == "sequence" else named, np)
    return PortionSums(
        np.repeat(np.arange(len(portion)), [block.last - block.first for block in portion]),
        segments,
        {name: np.concatenate([each.codes[name] for each in of_blocks]) for name in of_blocks[0].codes},
        {name: together([each.scattered[name] for each in of_blocks]) for name in of_blocks[0].scattered},
        sums,
        whole,
        None if rows.stands_for is None else rows.stands_for[first:last],
    )


def _cells(tokens: Tokens, starts: Integers, piece: SliceCodes) -> tuple[Scattered, Integers]:
    """The (sequence, code) of each token as a cell, and the name of each cell: sequence * number of keys + code, -1 for none."""
    code, sequence, width = tokens.codes[piece.name], tokens.sequence_at(starts), len(piece.keys)
    count = int(sequence.max(initial=-1)) + 1
    if count * (width + 1) <= 4 * len(code):
        places = np.arange(-1, width)  # of each sequence: none, and each code
        names = np.where(places < 0, -1, np.arange(count)[:, None] * width + places).reshape(-1)
        return Scattered(code, sequence * (width + 1) + 1, len(names)), names
    names = tokens.sequence * width + code
    names[code < 0] = -1
    occupied, cells = np.unique(
        names, return_inverse=True
    )  # most cells are empty, such as those of a slice by token id
    return Scattered(cells, np.zeros_like(starts), len(occupied)), occupied


def _named(names: Integers, first: int, matrix: Matrix) -> Cells:
    """The cells that have a name, counted from the first sequence of the portion."""
    chosen = np.flatnonzero(names >= 0)
    return Cells(names[chosen] + first, matrix if len(chosen) == len(names) else matrix[:, chosen])


def together(parts: Sequence[Cells]) -> Cells:
    """The cells of all parts, one part behind the other."""
    if len(parts) == 1:  # as in most portions of an engine that takes several blocks at once
        return parts[0]
    return Cells(
        np.concatenate([part.codes for part in parts]), np.concatenate([part.matrix for part in parts], axis=1)
    )


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
            # sums are added up within blocks first, so that they do not depend on what a portion is
            count = int(blocks[-1]) + 1 if len(blocks) else 1
            cells = reduced(matrix, cell * count + blocks, order.combines)
            yield Cells(cells.codes // count, cells.matrix)


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
