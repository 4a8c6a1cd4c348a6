"""The row of one sequence among the rows of its step, and a span of its tokens."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.join import joined

from .token_frame import token_counts, token_frame
from .windows import Windows, cut


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
