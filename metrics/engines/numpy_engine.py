"""The numpy engine: Records -> one row of statistics per (attempt, step, gap, slice, key). It runs in one thread, on any CPU.

It reads blocks of whole sequences that fit into the processor's cache. There are three reductions: tokens to (sequence, cell),
the level of cluster statistics; these to cells; and the cells of all blocks to the result. No metric is named here.

A row that was kept by chance represents 1 / inclusion_probability rows. Sums are then Horvitz-Thompson estimates of the sums
over all rows. Products within a sequence count by the square of this number, so that standard errors include the chance of
being kept. Tails are left out, because the largest weights of a sample are not the largest of all.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Floats, Integers
from ratioscope.record import GAPS, kin

from ..distribution import PLAIN, Level
from ..metric import SAMPLED
from ..pieces import repeated
from ..reduction import Cells, numbered
from .arrow_columns import GapRows, Groups, gap_rows, step_groups
from .block_tokens import Block, Tokens, token_weights, tokens_at_once
from .level_statistics import statistics_by_level
from .loops import NUMPY_LOOPS, LogWeights, Loops, Runs
from .portion import PortionSums, block_sums, merged, portion_cells, portion_sums, portions, statistics_of_cells
from .slices import Labels, SliceCodes, slices_again, slices_of
from .spread import Spread
from .statistics_table import SliceCells, statistics_table


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
    parts, made, others = list[SliceCells](), list[tuple[GapRows, list[SliceCodes]]](), list[GapRows]()
    for gap in gaps:
        rows = gap_rows(records, gap, others)
        if not len(rows.rows):
            continue
        others.append(rows)
        own = slices_again(rows, made, loops) or slices_of(records, rows, slices or {}, loops, written=written)
        made.append((rows, own))
        parts += gap_cells(records, rows, own, loops)
    return statistics_table(parts)


def gap_cells(
    records: pa.Table, rows: GapRows, slices: Sequence[SliceCodes], loops: Loops = NUMPY_LOOPS
) -> list[SliceCells]:
    """The cells of each slice."""
    levels, groups = statistics_by_level(rows.gap), step_groups(records, rows.rows)
    found: list[list[Cells]] = [[] for _ in slices]
    has_spread = any(piece.name == "all" for piece in slices)
    spread = Spread(tails=kin(rows.gap) in SAMPLED and rows.stands_for is None, loops=loops)
    with np.errstate(all="ignore"):
        for portion in portions(rows, loops.block_tokens):
            here, of_blocks = slice(portion[0].first, portion[-1].last), []
            for few, tokens in tokens_at_once(rows, portion, slices, loops.blocks_at_once):
                of_blocks.append(block_sums(tokens, few[0].first - here.start, slices, levels, loops))
                # blocks of plain weights are added up as if they were alone
                for some in ([few] if tokens.is_plain else [[block] for block in few]) if has_spread else ():
                    part = tokens.part(some[0].first - few[0].first, some[-1].last - few[0].first)
                    _spread_tokens(spread, part, rows, some, groups)
            sums, group = portion_sums(rows, portion, of_blocks, levels), groups.of_row[here]
            cells = portion_cells(
                rows.gap, sums, group, [(piece, piece.codes[here]) for piece in slices], levels, loops
            )
            for place, own in zip(found, cells, strict=True):
                place.append(own)
            if has_spread:
                _spread_sequences(spread, sums, group)
        result = []
        for piece, parts in zip(slices, found, strict=True):
            order = statistics_of_cells(levels, piece)
            each = merged(parts, order)
            lists = spread.columns(each.codes) if piece.name == "all" else {}
            result.append(SliceCells(rows.gap, piece, each, order, groups, lists))
        return result


def _spread_tokens(spread: Spread, tokens: Tokens, rows: GapRows, blocks: Sequence[Block], groups: Groups) -> None:
    """Adds the log-weights of the tokens of some blocks to the distributions and tails of their groups, block by block."""
    here, count = slice(blocks[0].first, blocks[-1].last), len(blocks)
    own = np.repeat(np.arange(count), [block.last - block.first for block in blocks])
    names, place = numbered(groups.of_row[here] * count + own)
    lengths, weights = token_weights(tokens)
    times = None if rows.stands_for is None else repeated(rows.stands_for[here], lengths)
    spread.add("token", names // count, Runs.of(place, lengths), weights, times)


def _spread_sequences(spread: Spread, sums: PortionSums, group: Integers) -> None:
    """Adds the log-weights of a portion's sequences to the distributions and tails of their groups, block by block."""
    whole = np.flatnonzero(sums.columns.sequence > 0)
    count = int(sums.blocks.max(initial=0)) + 1
    of_level: dict[Level, Floats] = {"sequence": sums.columns.log_weight, "geometric": sums.columns.mean_log_weight}
    for level, log_weight in of_level.items():
        is_plain = np.abs(log_weight[whole]).max(initial=0.0) <= PLAIN
        changes = np.flatnonzero(np.diff(sums.blocks[whole])) + 1
        # blocks of plain weights are added up as if they were alone
        for part in [whole] if is_plain else np.split(whole, changes):
            names, place = numbered(group[part] * count + sums.blocks[part])
            times = None if sums.stands_for is None else sums.stands_for[part]
            runs = Runs.of(place, np.ones(len(place), np.int64))
            spread.add(level, names // count, runs, LogWeights.of(log_weight[part]), times)
