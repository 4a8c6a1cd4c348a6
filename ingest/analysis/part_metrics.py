"""The gap of each part of one sequence, such as of the turns of a conversation."""

from collections.abc import Sequence

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.metrics.analysis.slice_parts import size_metric
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.frame import metric_frame
from ratioscope.record import sides

LARGEST = "max_abs_log_ratio"


def part_metrics(tokens: pl.DataFrame, starts: Sequence[int], gap: str) -> pl.DataFrame:
    """One row per part with sampled tokens: `part` (its number), the gap's size (see `size_metric`), its `_se`, and LARGEST.

    tokens: as Run.sequence gives them. starts: the first row of each part, ascending from 0. Metrics are of sampled tokens, as
    for any slice of a run. A single sequence has no standard error, which is one between sequences.
    """
    logprobs = {
        f"{side}_logprobs": tokens[f"{side}_logprob"] for side in sides(gap) if f"{side}_logprob" in tokens.columns
    }
    if len(logprobs) < 2 or tokens[gap].null_count() == len(tokens):
        return pl.DataFrame(schema={"part": pl.Int64})
    keys = {name: pa.array([0], pa.int64()) for name in ("attempt", "step")} | {"sequence_id": pa.array([""])}
    lists = {name: pa.array([column.to_list()], pa.list_(pa.float32())) for name, column in logprobs.items()}
    masks = {"mask": pa.array([tokens["mask"].fill_null(True).to_list()])} if "mask" in tokens.columns else {}
    parts = np.searchsorted(starts, np.arange(len(tokens)), side="right") - 1
    records = pa.table({**keys, **lists, **masks})
    own = statistics(records, slices={"part": pa.array([parts.tolist()])}, written=False, gaps=[gap])
    frame = metric_frame(pl.DataFrame(own), by=("part",), names=(size_metric(gap), LARGEST))
    return frame.cast({"part": pl.Int64})
