"""Rows of top-k: the likeliest tokens of each place, and the log-probs of each policy at them. A run may have none."""

import numpy as np
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.metrics.engines.arrow_columns import list_lengths, pc
from ratioscope.topk import COUNTS, IDS, LOGPROBS, MOST_TOPK

REQUIRED = ("attempt", "step", "sequence_id", COUNTS, IDS)


def alternatives(table: pa.Table) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The number of alternatives of each row: its counts per token, added up."""
    counts = pc.fill_null(pc.list_flatten(table[COUNTS]), 0).to_numpy().astype(np.int64)
    ends = np.cumsum(list_lengths(table[COUNTS]))
    totals = np.concatenate(([0], np.cumsum(counts)))[np.concatenate(([0], ends))]
    return np.diff(totals)


def demand_lists(table: pa.Table) -> None:
    """SourceError unless the lists of every row fit its counts."""
    bounds = pc.min_max(pc.list_flatten(table[COUNTS])).as_py()
    if bounds["min"] is not None and not 0 <= bounds["min"] <= bounds["max"] <= MOST_TOPK:
        raise SourceError(f"a token has {bounds['min']} to {bounds['max']} alternatives; wanted 0 to {MOST_TOPK}")
    wanted = alternatives(table)
    for name in (IDS, *LOGPROBS):
        given = pc.is_valid(table[name]).to_numpy() | (name == IDS)
        if (list_lengths(table[name]) != wanted)[given].any():
            raise SourceError(f"{name} has another number of values than {COUNTS} adds up to in some row")
    positions = pc.is_valid(table["positions"]).to_numpy()
    if (list_lengths(table["positions"]) != list_lengths(table[COUNTS]))[positions].any():
        raise SourceError(f"positions has another number of tokens than {COUNTS} in some row")
