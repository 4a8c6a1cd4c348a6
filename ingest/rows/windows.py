"""Windows into long sequences: an analysis of few tokens reads parts of a sequence of a million, and knows where they stood.

The row of one sequence among the rows of its step, and a span of its tokens.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.arrays import Floats, Integers
from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, list_lengths, pc, whole
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.pieces import places

from .token_frame import LISTS, token_counts, token_frame

PER_SEQUENCE = 4
"""Windows of a long sequence: the first begins with it, the last ends with it, the others are tiles of the middle by chance."""
TURN = (5**0.5 - 1) / 2
"""Golden section: its multiples modulo 1 fill 0 to 1 evenly, however many are taken."""


@dataclass(frozen=True)
class Windows:
    """Spans of tokens, sequence after sequence and ascending within each."""

    row: Integers
    """Index of the sequence of each window."""
    start: Integers
    """Place of its first token in the sequence, from 0."""
    length: Integers
    share: Floats
    """The chance with which its tokens are in a window: 1 for the ends and for whole sequences."""


def windows(lengths: Integers, most: int, seed: int = 0) -> Windows:
    """One window over each sequence of at most so many tokens; PER_SEQUENCE in each longer one, with at most `most` together.

    The middle of a long sequence is cut into tiles, of which every one is taken with the same chance: weighted by 1 / share, a
    mean over the windows has no bias, though both ends are always there. seed: other tiles.
    """
    each, inner = max(1, most // PER_SEQUENCE), PER_SEQUENCE - 2
    count = np.where(lengths > most, PER_SEQUENCE, 1)
    row = np.repeat(np.arange(len(lengths)), count)
    place, size = places(count), lengths[row]
    tiles = -(-(size - 2 * each) // each)
    chance = (row + 1 + 97 * (seed % 65_521)) * TURN % 1  # a step may be any number of 64 bits
    tile = ((place - 1 + chance) * tiles / inner).astype(np.int64)
    middle = (count[row] > 1) & (place > 0) & (place < PER_SEQUENCE - 1)
    last = (count[row] > 1) & (place == PER_SEQUENCE - 1)
    start = np.where(middle, each * (1 + tile), np.where(last, size - each, 0))
    length = np.where(middle, np.minimum(each, size - each - start), np.where(count[row] > 1, each, size))
    return Windows(row, start, length, np.where(middle, inner / np.maximum(tiles, 1), 1.0))


def cut(records: pa.Table, spans: Windows) -> pa.Table:
    """One row per window, with the columns of each token cut to it.

    A list becomes null that has neither one value per token of its sequence nor, as `advantages` may, a single one.
    """
    lengths, rows = token_counts(records), spans.row.tolist()
    columns: dict[str, Any] = {name: records[name] for name in records.column_names}
    for name, column in columns.items():
        is_of_tokens = name in LISTS.values() or name.endswith("_logprobs")
        lists = _cut(whole(column), lengths, spans, single=name == "advantages") if is_of_tokens else None
        columns[name] = column.take(rows) if lists is None else lists
    return pa.table(columns)


def _cut(column: Any, lengths: Integers, spans: Windows, *, single: bool) -> Any:
    """The lists of an Arrow column, one per window. single: a list of one value, which is for all tokens, stays as it is."""
    own = list_lengths(column)
    fits, once = (own == lengths)[spans.row], (own == 1)[spans.row] & single
    valid = column.is_valid().to_numpy(zero_copy_only=False)[spans.row] & (fits | once)
    first = column.offsets.to_numpy()[spans.row] + np.where(fits, spans.start, 0)
    kept = np.where(valid, np.where(fits, spans.length, 1), 0)
    parts = [column.values.slice(int(at), int(size)) for at, size in zip(first, kept, strict=True)]
    offsets: Any = pa.array(np.cumsum([0, *kept]), pa.int32())
    values = pa.concat_arrays(parts or [column.values.slice(0, 0)])
    return pa.ListArray.from_arrays(offsets, values, type=column.type, mask=pa.array(~valid))


@dataclass(frozen=True)
class Span:
    """Some tokens of a sequence of a step."""

    sequence_id: str
    minibatch: int | None = None
    """None: the row without a minibatch, else the first."""
    first: int = 0
    """The position that it begins at, from 0."""
    most: int | None = None
    """Number of its tokens, fewer where the sequence ends; None: all that follow."""


def span_frame(own: pa.Table, span: Span, wanted: Collection[str] | None) -> pl.DataFrame:
    """One row per token of the span of a joined Record, a table of one row. wanted: columns, as of `token_frame`."""
    length = int(token_counts(own)[0])
    first = min(max(span.first, 0), length)
    size = length - first if span.most is None else min(span.most, length - first)
    if size == length:
        return token_frame(own, wanted)
    one = Windows(np.zeros(1, np.int64), np.array([first]), np.array([size]), np.ones(1))
    return token_frame(cut(own, one), wanted).with_columns(pl.col("position") + first)


def row_of_sequence(rows: pa.Table, step: int, sequence_id: str, minibatch: int | None) -> pa.Table:
    """The joined Record of a sequence, one row. minibatch None: the row without one, else the first. SourceError if absent."""
    own = joined(rows.filter(pc.equal(rows["sequence_id"], sequence_id)))
    minibatches = own["minibatch"].to_pylist()
    if not minibatches:
        raise SourceError(f"step {step} has no sequence {sequence_id!r}; it has {_some_ids(rows['sequence_id'])}")
    chosen = min(minibatches, key=lambda k: -1 if k is None else k) if minibatch is None else minibatch
    if chosen not in minibatches:
        raise SourceError(f"sequence {sequence_id!r} has no minibatch {minibatch}; it has {minibatches}")
    return own.slice(minibatches.index(chosen), 1)


def _some_ids(ids: ArrowColumn) -> str:
    """The number of ids and a few of them, in words."""
    few = pc.unique(ids).slice(0, 3).to_pylist()
    return f"{len(pc.unique(ids))}, such as {', '.join(map(repr, few))}" if few else "none"
