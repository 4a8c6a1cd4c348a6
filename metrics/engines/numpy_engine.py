"""The numpy engine: Records -> one row of statistics per (attempt, step, gap, slice, key). Runs anywhere, in one thread.

Blocks of whole sequences, small enough for the cache, go through three reductions: tokens to (sequence, cell), the level
of cluster statistics; that to cells; and the cells of all blocks to the result. Nothing here knows a metric's name.

Rows that were kept by chance stand for 1 / inclusion_probability rows each: their sums are Horvitz-Thompson estimates of those of
all rows, products within a sequence count by the square, so that standard errors hold the chance of having been kept. Tails
are left out, for the largest of a sample are not the largest of all.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa

from ratioscope.record import GAPS

from ..columns import SHIFTS, SequenceColumns, TokenColumns, sequence_columns, token_columns
from ..definitions.registry import STATISTICS, statistics_of
from ..definitions.validity import TOKENS
from ..metric import SAMPLED
from ..reduction import Cells, Matrix, first_of_each, reduced
from ..statistic import NEUTRAL, Statistic
from .arrow_columns import GapRows, Integers, gap_rows, step_codes
from .slices import CONTIGUOUS, Labels, SliceCodes, slices_of
from .spread import Floats, Spread, spread_fields

BLOCK_TOKENS = 1 << 14


@dataclass(frozen=True)
class Plan:
    """The statistics of a gap, by the level of their formula; of the token ones, those that slices by token keep first."""

    token: tuple[Statistic, ...]
    sliced: tuple[Statistic, ...]
    cluster: tuple[Statistic, ...]
    sequence: tuple[Statistic, ...]


@dataclass(frozen=True)
class Block:
    """Some whole sequences of a GapRows: rows [first, last), tokens [start, stop)."""

    first: int
    last: int
    start: int
    stop: int


def statistics(records: pa.Table, *, slices: Mapping[str, Labels] | None = None, written: bool = True) -> pa.Table:
    """Statistics of every gap on record, for the written slices and those in `slices` (name -> labels per row or token).

    Never raises on bad values: they are set aside and counted. A gap of which no row has both sides gives no rows.
    """
    parts = []
    for gap in GAPS:
        rows = gap_rows(records, gap)
        if len(rows.rows):
            parts += gap_statistics(records, rows, slices_of(records, rows, slices or {}, written=written))
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


def gap_statistics(records: pa.Table, rows: GapRows, slices: Sequence[SliceCodes]) -> list[pa.Table]:
    """One table per slice."""
    plan = plan_of(rows.gap)
    attempts, steps, groups = step_codes(records, rows.rows)
    found: list[list[Cells]] = [[] for _ in slices]
    spread = Spread(tails=rows.gap in SAMPLED and rows.stands_for is None)
    with np.errstate(all="ignore"):
        for block in blocks(rows):
            sums = block_sums(rows, block, slices, plan)
            for place, piece in zip(found, block_cells(sums, block, groups, slices, plan), strict=True):
                place.append(piece)
            if any(piece.name == "all" for piece in slices):
                _spread(spread, sums, block, groups, plan)
        return [
            _table(rows.gap, piece, _merged(cells, _order(plan, piece)), _order(plan, piece), attempts, steps, spread)
            for piece, cells in zip(slices, found, strict=True)
        ]


def plan_of(gap: str) -> Plan:
    """What to evaluate for a gap."""
    token, cluster, sequence = (
        tuple(s for s in statistics_of(gap) if s.level == level) for level in ("token", "cluster", "sequence")
    )
    # Sums last, and of these the whole ones: what a slice by token reduces is then a view of the first rows.
    token = tuple(sorted(token, key=lambda s: (s.combine == "sum", s.combine, s.whole)))
    return Plan(token, tuple(s for s in token if not s.whole), cluster, sequence)


def blocks(rows: GapRows) -> Iterator[Block]:
    """Runs of whole sequences of about BLOCK_TOKENS tokens; at least one sequence each."""
    ends = np.cumsum(rows.lengths)
    first, start = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, start + BLOCK_TOKENS, side="right")))
        stop = int(ends[last - 1])
        yield Block(first, last, start, stop)
        first, start = last, stop


@dataclass(frozen=True)
class Tokens:
    """Unmasked tokens of a block, or runs of them: their sequence within the block, slice codes and statistics."""

    sequence: Integers
    codes: Mapping[str, Integers]
    values: Matrix


@dataclass(frozen=True)
class BlockSums:
    """What a block sums to. runs: tokens of one sequence and one code in every contiguous slice.

    sequences: all statistics of each sequence, also of those without a token.
    """

    tokens: Tokens
    runs: Tokens
    log_weight: Matrix
    sequences: Matrix
    columns: SequenceColumns
    stands_for: Floats | None


def block_sums(rows: GapRows, block: Block, slices: Sequence[SliceCodes], plan: Plan) -> BlockSums:
    """The token formulas of a block, and what its runs and sequences sum to."""
    every = np.repeat(np.arange(block.last - block.first), rows.lengths[block.first : block.last])
    kept = np.flatnonzero(rows.mask[block.start : block.stop])
    columns = _columns(rows, block, every, kept)
    values = np.empty((len(plan.token), len(kept)))
    for row, statistic in zip(values, plan.token, strict=True):
        row[:] = statistic.formula(columns, np)
    codes = {piece.name: piece.codes[block.start : block.stop][kept] for piece in slices if piece.by_token}
    sequence = every[kept]
    run = _runs([sequence, *(codes[name] for name in CONTIGUOUS if name in codes)])
    at = first_of_each(run)
    runs = reduced(values, run, plan.token).matrix
    sums = np.empty((len(plan.token), block.last - block.first))
    sums[:] = np.array([[NEUTRAL[s.combine]] for s in plan.token])
    present = reduced(runs, sequence[at], plan.token)
    sums[:, present.codes] = present.matrix
    named = _named(sums, plan.token)
    whole = sequence_columns(named, np)
    own = [s.formula(named, np) for s in plan.cluster] + [s.formula(whole, np) for s in plan.sequence]
    tokens = Tokens(sequence, codes, values)
    parts = Tokens(sequence[at], {name: code[at] for name, code in codes.items()}, runs)
    stands_for = None if rows.stands_for is None else rows.stands_for[block.first : block.last]
    return BlockSums(tokens, parts, columns.log_weight, np.concatenate((sums, np.stack(own))), whole, stands_for)


def block_cells(
    sums: BlockSums, block: Block, groups: Integers, slices: Sequence[SliceCodes], plan: Plan
) -> Iterator[Cells]:
    """The block's cells of each slice, coded by group * number of keys + code."""
    group = groups[block.first : block.last]
    for piece in slices:
        if piece.by_token:
            tokens = sums.runs if piece.name in CONTIGUOUS else sums.tokens
            yield _token_cells(tokens, piece, group, plan, sums.stands_for)
        else:
            code = piece.codes[block.first : block.last]
            order = _order(plan, piece)
            yield _cells(_weighted(sums.sequences, order, sums.stands_for), group, code, len(piece.keys), order)


def _weighted(matrix: Matrix, order: Sequence[Statistic], stands_for: Floats | None) -> Matrix:
    """Statistics of sequences, each counted as often as the rows it stands for."""
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


def _spread(spread: Spread, sums: BlockSums, block: Block, groups: Integers, plan: Plan) -> None:
    """Adds a block's log-weights to the distributions and tails of its groups."""
    group = groups[block.first : block.last]
    names, place = np.unique(group, return_inverse=True)
    usable = sums.tokens.values[plan.token.index(TOKENS)] > 0
    whole = sums.columns.sequence > 0
    of_token, times = sums.tokens.sequence[usable], sums.stands_for
    each = None if times is None else times[whole]
    spread.add("token", names, place[of_token], sums.log_weight[usable], None if times is None else times[of_token])
    spread.add("sequence", names, place[whole], sums.columns.log_weight[whole], each)
    spread.add("geometric", names, place[whole], sums.columns.mean_log_weight[whole], each)


def _columns(rows: GapRows, block: Block, sequence: Integers, kept: Integers) -> TokenColumns:
    here = slice(block.start, block.stop)
    earlier = rows.earlier[here].astype(np.float64)
    visible = np.where(rows.mask[here], earlier, np.nan)
    shifts = SHIFTS if rows.gap in SAMPLED else ()
    return token_columns(
        earlier[kept],
        rows.later[here][kept].astype(np.float64),
        np.ones(len(kept), np.bool_),
        np,
        entropy=None if rows.entropy is None else rows.entropy[here][kept].astype(np.float64),
        pairs={shift: _shifted(visible, sequence, shift)[kept] for shift in shifts},
    )


def _shifted(values: Matrix, sequence: Integers, shift: int) -> Matrix:
    """values[t - shift] at t where both lie in one sequence, else NaN."""
    result = np.full(len(values), np.nan)
    to, origin = (slice(shift, None), slice(None, -shift)) if shift > 0 else (slice(None, shift), slice(-shift, None))
    same = sequence[to] == sequence[origin]
    result[to] = np.where(same, values[origin], np.nan)
    return result


def _runs(codes: Sequence[Integers]) -> Integers:
    """Number of the run each token lies in; a run ends where any of the codes changes."""
    changes = np.zeros(len(codes[0]), np.bool_)
    for code in codes:
        changes[1:] |= code[1:] != code[:-1]
    return np.cumsum(changes, dtype=np.int64)


def _cells(sequences: Matrix, group: Integers, code: Integers, width: int, order: Sequence[Statistic]) -> Cells:
    chosen = np.flatnonzero(code >= 0)
    return reduced(sequences[:, chosen], group[chosen] * width + code[chosen], order)


def _token_cells(tokens: Tokens, piece: SliceCodes, group: Integers, plan: Plan, stands_for: Floats | None) -> Cells:
    width = len(piece.keys)
    values, sequence, code = tokens.values[: len(plan.sliced)], tokens.sequence, tokens.codes[piece.name]
    if (code < 0).any():
        chosen = np.flatnonzero(code >= 0)
        values, sequence, code = np.take(values, chosen, axis=1), sequence[chosen], code[chosen]
    pairs = reduced(values, sequence * width + code, plan.sliced)
    named = _named(pairs.matrix, plan.sliced)
    clusters = np.stack([s.formula(named, np) for s in plan.cluster])
    cell = group[pairs.codes // width] * width + pairs.codes % width
    order = plan.sliced + plan.cluster
    times = None if stands_for is None else stands_for[pairs.codes // width]
    return reduced(_weighted(np.concatenate((pairs.matrix, clusters)), order, times), cell, order)


def _named(matrix: Matrix, order: Sequence[Statistic]) -> dict[str, Matrix]:
    return {statistic.name: row for statistic, row in zip(order, matrix, strict=True)}


def _order(plan: Plan, piece: SliceCodes) -> tuple[Statistic, ...]:
    return plan.sliced + plan.cluster if piece.by_token else plan.token + plan.cluster + plan.sequence


def _merged(cells: Sequence[Cells], order: Sequence[Statistic]) -> Cells:
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
