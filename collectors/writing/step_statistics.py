"""Statistics of the rows of a step, which may come in parts: a flush in the middle of a step cuts it.

A reader merges the statistics of the parts, so together they must count every measurement exactly once.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.loops import NUMPY_LOOPS, Loops
from ratioscope.metrics.engines.numpy_engine import statistics

pc: Any = pyarrow.compute
"""`Any`: the stubs type values, and ours are known by the schema only."""


def whole_sequences(rows: pa.Table) -> pa.Table:
    """The rows without slices of sequences. Only a reader, who has all slices of a sequence, can measure these."""
    is_slice = pc.is_valid(rows["positions"])
    return rows.filter(pc.invert(is_slice)) if pc.any(is_slice).as_py() else rows


def part_statistics(rows: pa.Table, earlier: pa.Table | None, loops: Loops = NUMPY_LOOPS) -> pa.Table:
    """Statistics of the rows. Columns that they lack are taken from the earlier rows of the same step.

    mismatch is measured once per sequence, in the first part that has both of its sides.
    """
    rows = whole_sequences(rows)
    earlier = None if earlier is None else whole_sequences(earlier)
    if earlier is None:
        return statistics(joined(rows), loops=loops)
    together = joined(pa.concat_tables([earlier, rows]))
    has_both = pc.and_(pc.is_valid(together["rollout_logprobs"]), pc.is_valid(together["old_logprobs"]))
    before = together.slice(0, len(earlier)).filter(has_both.slice(0, len(earlier)))
    fresh = together.slice(len(earlier))
    is_measured = np.asarray(pc.is_in(fresh["sequence_id"], value_set=before["sequence_id"].combine_chunks()))
    again = statistics(fresh.filter(pa.array(is_measured)), loops=loops)
    return pa.concat_tables(
        [
            statistics(fresh.filter(pa.array(~is_measured)), loops=loops),
            again.filter(pa.array([gap != "mismatch" for gap in again["gap"].to_pylist()], pa.bool_())),
        ]
    )
