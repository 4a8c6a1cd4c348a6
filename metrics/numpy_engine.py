"""The numpy engine: Records -> one row of statistics per (attempt, step, gap, slice, key). Runs anywhere, in one thread.

Blocks of whole sequences, small enough for the cache, go through three reductions: tokens to (sequence, cell), the level
of cluster statistics; that to cells; and the cells of all blocks to the result. Nothing here knows a metric's name.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ratioscope.record import GAPS

from .arrow_columns import GapRows, Integers, gap_rows, step_codes
from .columns import SHIFTS, TokenColumns, sequence_columns, token_columns
from .registry import STATISTICS, statistics_of
from .slices import CONTIGUOUS, Labels, SliceCodes, slices_of
from .metric import SAMPLED
from .statistic import NEUTRAL, Statistic

Matrix = npt.NDArray[np.float64]
"""(statistics, cells)"""

BLOCK_TOKENS = 1 << 14


@dataclass(frozen=True)
class Plan:
    """The statistics of a gap, by the level of their formula."""

    token: tuple[Statistic, ...]
    cluster: tuple[Statistic, ...]
    sequence: tuple[Statistic, ...]


@dataclass(frozen=True)
class Block:
    """Some whole sequences of a GapRows: rows [first, last), tokens [start, stop)."""

    first: int
    last: int
    start: int
    stop: int


@dataclass(frozen=True)
class Cells:
    """Statistics of some cells, by code: matrix[i, j] is statistic i of the cell codes[j]; codes ascend and are unique."""

    codes: Integers
    matrix: Matrix


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


def schema() -> pa.Schema:
    """The schema of a statistics table."""
    keys = [
        ("attempt", pa.int32()),
        ("step", pa.int64()),
        ("gap", pa.string()),
        ("slice", pa.string()),
        ("key", pa.string()),
    ]
    return pa.schema(keys + [(statistic.name, pa.float64()) for statistic in STATISTICS])


def gap_statistics(records: pa.Table, rows: GapRows, slices: Sequence[SliceCodes]) -> list[pa.Table]:
    """One table per slice."""
    chosen = statistics_of(rows.gap)
    plan = Plan(*(tuple(s for s in chosen if s.level == level) for level in ("token", "cluster", "sequence")))
    attempts, steps, groups = step_codes(records, rows.rows)
    found: list[list[Cells]] = [[] for _ in slices]
    with np.errstate(all="ignore"):
        for block in blocks(rows):
            for place, piece in zip(found, block_cells(rows, block, groups, slices, plan), strict=True):
                place.append(piece)
        return [
            _table(rows.gap, piece, _merged(cells, _order(plan, piece)), _order(plan, piece), attempts, steps)
            for piece, cells in zip(slices, found, strict=True)
        ]


def blocks(rows: GapRows) -> Iterator[Block]:
    """Runs of whole sequences of about BLOCK_TOKENS tokens; at least one sequence each."""
    ends = np.cumsum(rows.lengths)
    first, start = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, start + BLOCK_TOKENS, side="right")))
        stop = int(ends[last - 1])
        yield Block(first, last, start, stop)
        first, start = last, stop


def block_cells(
    rows: GapRows, block: Block, groups: Integers, slices: Sequence[SliceCodes], plan: Plan
) -> Iterator[Cells]:
    """The block's cells of each slice, coded by group * number of keys + code."""
    kept = np.flatnonzero(rows.mask[block.start : block.stop])
    every = np.repeat(np.arange(block.last - block.first), rows.lengths[block.first : block.last])
    columns = _columns(rows, block, every, kept)
    values = np.stack([np.asarray(s.formula(columns, np), np.float64) for s in plan.token])
    by_token = {piece.name: piece.codes[block.start : block.stop][kept] for piece in slices if piece.by_token}
    ordered = [piece.name for piece in slices if piece.name in CONTIGUOUS and piece.by_token]
    run = _runs([every[kept], *(by_token[name] for name in ordered)])
    runs = reduced(values, run, plan.token)
    at = np.searchsorted(run, runs.codes)  # the first token of each run
    sequences = _whole_sequences(reduced(runs.matrix, every[kept][at], plan.token), block, plan)
    group = groups[block.first : block.last]
    for piece in slices:
        width = len(piece.keys)
        if not piece.by_token:
            code = piece.codes[block.first : block.last]
            yield _cells(sequences, group, code, width, _order(plan, piece))
        elif piece.name in ordered:
            yield _token_cells(runs.matrix, every[kept][at], by_token[piece.name][at], group, width, plan)
        else:
            yield _token_cells(values, every[kept], by_token[piece.name], group, width, plan)


def reduced(matrix: Matrix, codes: Integers, order: Sequence[Statistic]) -> Cells:
    """Columns of equal code combined, each statistic (row) in its own way."""
    if len(codes) and (codes[1:] < codes[:-1]).any():
        sorting = np.argsort(codes, kind="stable")
        matrix, codes = matrix[:, sorting], codes[sorting]
    starts = np.flatnonzero(np.concatenate(([True], codes[1:] != codes[:-1]))) if len(codes) else codes
    result = np.empty((len(order), len(starts)))
    if len(starts):
        for combine in NEUTRAL:
            chosen = [i for i, statistic in enumerate(order) if statistic.combine == combine]
            result[chosen] = _REDUCTIONS[combine](matrix[chosen], starts)
    return Cells(codes[starts], result)


def _sum(matrix: Matrix, starts: Integers) -> Matrix:
    return np.add.reduceat(matrix, starts, axis=1)


def _max(matrix: Matrix, starts: Integers) -> Matrix:
    return np.maximum.reduceat(matrix, starts, axis=1)


def _logsumexp(matrix: Matrix, starts: Integers) -> Matrix:
    largest = np.maximum.reduceat(matrix, starts, axis=1)
    anchor = np.where(np.isfinite(largest), largest, 0.0)
    counts = np.diff(np.append(starts, matrix.shape[1]))
    return anchor + np.log(np.add.reduceat(np.exp(matrix - np.repeat(anchor, counts, axis=1)), starts, axis=1))


_REDUCTIONS = {"sum": _sum, "max": _max, "logsumexp": _logsumexp}


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
    return np.cumsum(changes)


def _whole_sequences(cells: Cells, block: Block, plan: Plan) -> Matrix:
    """All statistics of each sequence of the block, also of those without an unmasked token."""
    sums = np.empty((len(plan.token), block.last - block.first))
    sums[:] = np.array([[NEUTRAL[s.combine]] for s in plan.token])
    sums[:, cells.codes] = cells.matrix
    named = _named(sums, plan)
    columns = sequence_columns(named, np)
    own = [s.formula(named, np) for s in plan.cluster] + [s.formula(columns, np) for s in plan.sequence]
    return np.concatenate((sums, np.stack(own)))


def _cells(sequences: Matrix, group: Integers, code: Integers, width: int, order: Sequence[Statistic]) -> Cells:
    chosen = np.flatnonzero(code >= 0)
    return reduced(sequences[:, chosen], group[chosen] * width + code[chosen], order)


def _token_cells(values: Matrix, sequence: Integers, code: Integers, group: Integers, width: int, plan: Plan) -> Cells:
    chosen = np.flatnonzero(code >= 0)
    if len(chosen) < len(code):
        values, sequence, code = values[:, chosen], sequence[chosen], code[chosen]
    pairs = reduced(values, sequence * width + code, plan.token)
    named = _named(pairs.matrix, plan)
    clusters = np.stack([s.formula(named, np) for s in plan.cluster])
    cell = group[pairs.codes // width] * width + pairs.codes % width
    return reduced(np.concatenate((pairs.matrix, clusters)), cell, plan.token + plan.cluster)


def _named(matrix: Matrix, plan: Plan) -> dict[str, Matrix]:
    return {statistic.name: row for statistic, row in zip(plan.token, matrix, strict=True)}


def _order(plan: Plan, piece: SliceCodes) -> tuple[Statistic, ...]:
    return plan.token + plan.cluster + (() if piece.by_token else plan.sequence)


def _merged(cells: Sequence[Cells], order: Sequence[Statistic]) -> Cells:
    return reduced(np.concatenate([c.matrix for c in cells], axis=1), np.concatenate([c.codes for c in cells]), order)


def _table(
    gap: str, piece: SliceCodes, cells: Cells, order: Sequence[Statistic], attempts: Integers, steps: Integers
) -> pa.Table:
    width = len(piece.keys)
    group = cells.codes // width
    columns = {
        "attempt": pa.array(attempts[group], pa.int32()),
        "step": pa.array(steps[group], pa.int64()),
        "gap": pa.array([gap] * len(group), pa.string()),
        "slice": pa.array([piece.name] * len(group), pa.string()),
        "key": pa.array(piece.keys, pa.string()).take(pa.array(cells.codes % width)),
        **{statistic.name: pa.array(row) for statistic, row in zip(order, cells.matrix, strict=True)},
    }
    return pa.table(
        [columns[f.name] if f.name in columns else pa.nulls(len(group), f.type) for f in schema()], schema=schema()
    )
