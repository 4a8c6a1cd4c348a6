"""The numpy engine: Records -> one row of statistics per (attempt, step, gap, slice, key). It runs in one thread, on any CPU.

It reads blocks of whole sequences that fit into the processor's cache. There are three reductions: tokens to (sequence, cell),
the level of cluster statistics; these to cells; and the cells of all blocks to the result. No metric is named here.

A row that was kept by chance represents 1 / inclusion_probability rows. Sums are then Horvitz-Thompson estimates of the sums
over all rows. Products within a sequence count by the square of this number, so that standard errors include the chance of
being kept. Tails are left out, because the largest weights of a sample are not the largest of all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from ratioscope.record import GAPS, kin

from ..columns import SequenceColumns, sequence_columns
from ..definitions.registry import STATISTICS
from ..metric import SAMPLED
from ..reduction import Cells, Matrix, first_of_each, reduced
from ..statistic import NEUTRAL, Statistic
from .arrow_columns import GapRows, Integers, gap_rows, step_codes
from .block_tokens import Block, Tokens, block_tokens, blocks, changes, token_weights
from .level_statistics import LevelStatistics, statistics_by_level
from .loops import NUMPY_LOOPS, Loops
from .slices import CONTIGUOUS, Codes, Labels, SliceCodes, slices_of
from .spread import Floats, Spread, spread_fields


def statistics(
    records: pa.Table,
    *,
    slices: Mapping[str, Labels] | None = None,
    written: bool = True,
    gaps: Iterable[str] = tuple(GAPS),
    loops: Loops = NUMPY_LOOPS,
) -> pa.Table:
    """Statistics of these gaps on record, for the written slices and those in `slices` (name -> labels per row or token).

    gaps: those of GAPS, or between any two policies and readings whose columns are there, such as rollout:referee. Bad
    values never raise: they are set aside and counted. A gap has no rows in the result if no record has both its sides.
    """
    parts = []
    for gap in gaps:
        rows = gap_rows(records, gap)
        if len(rows.rows):
            pieces = slices_of(records, rows, slices or {}, written=written)
            parts += gap_statistics(records, rows, pieces, loops)
    return pa.concat_tables(parts) if parts else schema().empty_table()


@cache
def schema() -> pa.Schema:
    """The schema of a statistics table."""
    keys: list[tuple[str, pa.DataType]] = [
        ("attempt", pa.int32()),
        ("step", pa.int64()),
        ("gap", pa.string()),
        ("slice", pa.string()),
        ("key", pa.string()),
    ]
    scalars: list[tuple[str, pa.DataType]] = [(statistic.name, pa.float64()) for statistic in STATISTICS]
    return pa.schema([*keys, *scalars, *spread_fields()])


def gap_statistics(
    records: pa.Table, rows: GapRows, slices: Sequence[SliceCodes], loops: Loops = NUMPY_LOOPS
) -> list[pa.Table]:
    """One table per slice."""
    levels = statistics_by_level(rows.gap)
    attempts, steps, groups = step_codes(records, rows.rows)
    found: list[list[Cells]] = [[] for _ in slices]
    spread = Spread(tails=kin(rows.gap) in SAMPLED and rows.stands_for is None, loops=loops)
    with np.errstate(all="ignore"):
        for block in blocks(rows, loops.block_tokens):
            sums = block_sums(rows, block, slices, levels, loops)
            for place, piece in zip(found, block_cells(sums, block, groups, slices, levels, loops), strict=True):
                place.append(piece)
            if any(piece.name == "all" for piece in slices):
                _spread(spread, sums, block, groups)
        return [
            _table(
                rows.gap, piece, _merged(cells, _order(levels, piece)), _order(levels, piece), attempts, steps, spread
            )
            for piece, cells in zip(slices, found, strict=True)
        ]


@dataclass(frozen=True)
class BlockSums:
    """The sums of a block."""

    tokens: Tokens
    starts: Integers
    """The first token of each segment: adjacent tokens of one sequence with the same code in every contiguous slice."""
    segments: Matrix
    """Token statistics that slices have, of the segments, shape (statistics, segments)."""
    sequences: Matrix
    """All statistics of each sequence, with or without a token, shape (statistics, sequences)."""
    columns: SequenceColumns
    stands_for: Floats | None
    """Number of sequences that each sequence represents; None: one each."""


def block_sums(
    rows: GapRows, block: Block, slices: Sequence[SliceCodes], levels: LevelStatistics, loops: Loops
) -> BlockSums:
    """The token formulas of a block, evaluated and summed over its segments and sequences."""
    tokens = block_tokens(rows, block, slices)
    starts = changes([tokens.sequence, *(tokens.codes[name] for name in CONTIGUOUS if name in tokens.codes)])
    segments = loops.cell_sums(tokens.program(loops, whole=False), tokens.columns, starts)
    sums = np.empty((len(levels.token), block.last - block.first))
    sums[:] = np.array([[NEUTRAL[s.combine]] for s in levels.token])
    present = reduced(segments, tokens.sequence[starts], levels.sliced)
    sums[: len(levels.sliced), present.codes] = present.matrix
    if levels.whole:
        begins = first_of_each(tokens.sequence)
        sums[len(levels.sliced) :, present.codes] = loops.cell_sums(
            tokens.program(loops, whole=True), tokens.columns, begins
        )
    named = _named(sums, levels.token)
    whole = sequence_columns(named, np)
    own = [s.formula(named, np) for s in levels.cluster] + [s.formula(whole, np) for s in levels.sequence]
    stands_for = None if rows.stands_for is None else rows.stands_for[block.first : block.last]
    return BlockSums(tokens, starts, segments, np.concatenate((sums, np.stack(own))), whole, stands_for)


def block_cells(
    sums: BlockSums, block: Block, groups: Integers, slices: Sequence[SliceCodes], levels: LevelStatistics, loops: Loops
) -> Iterator[Cells]:
    """The block's cells of each slice, coded by group * number of keys + code."""
    group = groups[block.first : block.last]
    for piece in slices:
        if piece.by_token:
            yield _token_cells(sums, piece, group, levels, loops)
        else:
            code = piece.codes[block.first : block.last]
            order = _order(levels, piece)
            yield _cells(_weighted(sums.sequences, order, sums.stands_for), group, code, len(piece.keys), order)


def _weighted(matrix: Matrix, order: Sequence[Statistic], stands_for: Floats | None) -> Matrix:
    """Statistics of sequences, each counted as often as the number of rows that it represents."""
    if stands_for is None:
        return matrix
    by = {
        "sum": lambda row: row * stands_for,
        "max": lambda row: row,
        "logsumexp": lambda row: row + np.log(stands_for),
    }
    square = stands_for * stands_for
    rows = [row * square if s.level == "cluster" else by[s.combine](row) for s, row in zip(order, matrix, strict=True)]
    return np.stack(rows)


def _spread(spread: Spread, sums: BlockSums, block: Block, groups: Integers) -> None:
    """Adds a block's log-weights to the distributions and tails of its groups."""
    group = groups[block.first : block.last]
    names, place = np.unique(group, return_inverse=True)
    of_token, log_weight = token_weights(sums.tokens)
    whole = sums.columns.sequence > 0
    times = sums.stands_for
    each = None if times is None else times[whole]
    spread.add("token", names, place[of_token], log_weight, None if times is None else times[of_token])
    spread.add("sequence", names, place[whole], sums.columns.log_weight[whole], each)
    spread.add("geometric", names, place[whole], sums.columns.mean_log_weight[whole], each)


def _cells(sequences: Matrix, group: Integers, code: Codes, width: int, order: Sequence[Statistic]) -> Cells:
    chosen = np.flatnonzero(code >= 0)
    return reduced(sequences[:, chosen], group[chosen] * width + code[chosen], order)


def _token_cells(sums: BlockSums, piece: SliceCodes, group: Integers, levels: LevelStatistics, loops: Loops) -> Cells:
    width = len(piece.keys)
    pairs = _contiguous(sums, piece, levels) if piece.name in CONTIGUOUS else _scattered(sums.tokens, piece, loops)
    named = _named(pairs.matrix, levels.sliced)
    clusters = np.stack([s.formula(named, np) for s in levels.cluster])
    cell = group[pairs.codes // width] * width + pairs.codes % width
    order = levels.sliced + levels.cluster
    times = None if sums.stands_for is None else sums.stands_for[pairs.codes // width]
    return reduced(_weighted(np.concatenate((pairs.matrix, clusters)), order, times), cell, order)


def _contiguous(sums: BlockSums, piece: SliceCodes, levels: LevelStatistics) -> Cells:
    """Statistics of each (sequence, code), coded by sequence * number of keys + code, from those of the segments."""
    values, sequence = sums.segments, sums.tokens.sequence[sums.starts]
    code = sums.tokens.codes[piece.name][sums.starts]
    if (code < 0).any():
        chosen = np.flatnonzero(code >= 0)
        values, sequence, code = np.take(values, chosen, axis=1), sequence[chosen], code[chosen]
    return reduced(values, sequence * len(piece.keys) + code, levels.sliced)


def _scattered(tokens: Tokens, piece: SliceCodes, loops: Loops) -> Cells:
    """The same from the tokens, brought into the order of their codes."""
    code = tokens.codes[piece.name]
    chosen = np.flatnonzero(code >= 0) if (code < 0).any() else slice(None)
    cell = tokens.sequence[chosen] * len(piece.keys) + code[chosen]
    order = loops.order(cell, (int(tokens.sequence[-1]) + 1) * len(piece.keys)) if len(cell) else cell
    cell, program = cell[order], tokens.program(loops, whole=False)
    columns = {name: tokens.columns[name][chosen][order] for name in program.columns}
    starts = first_of_each(cell)
    return Cells(cell[starts], loops.cell_sums(program, columns, starts))


def _named(matrix: Matrix, order: Sequence[Statistic]) -> dict[str, Matrix]:
    return {statistic.name: row for statistic, row in zip(order, matrix, strict=True)}


def _order(levels: LevelStatistics, piece: SliceCodes) -> tuple[Statistic, ...]:
    return levels.sliced + levels.cluster if piece.by_token else levels.token + levels.cluster + levels.sequence


def _merged(cells: Sequence[Cells], order: Sequence[Statistic]) -> Cells:
    if len(cells) == 1:
        return cells[0]
    return reduced(np.concatenate([c.matrix for c in cells], axis=1), np.concatenate([c.codes for c in cells]), order)


def _table(
    gap: str,
    piece: SliceCodes,
    cells: Cells,
    order: Sequence[Statistic],
    attempts: Integers,
    steps: Integers,
    spread: Spread,
) -> pa.Table:
    width = len(piece.keys)
    group = cells.codes // width
    columns = {
        "attempt": pa.array(attempts[group], pa.int32()),
        "step": pa.array(steps[group], pa.int64()),
        "gap": pa.array([gap] * len(group), pa.string()),
        "slice": pa.array([piece.name] * len(group), pa.string()),
        "key": pa.array(piece.keys, pa.string()).take(pa.array(cells.codes % width, pa.int64())),
        **{statistic.name: pa.array(row) for statistic, row in zip(order, cells.matrix, strict=True)},
        **(spread.columns(group) if piece.name == "all" else {}),
    }
    return pa.table(
        [columns[f.name] if f.name in columns else pa.nulls(len(group), f.type) for f in schema()], schema=schema()
    )
