"""The row of one sequence among the rows of its step."""

import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.join import joined


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
