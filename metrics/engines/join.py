"""Completes rows of minibatches: columns that a minibatch's row lacks are copied from the row that describes the sequence."""

import numpy as np
import pyarrow as pa

from .arrow_columns import pc, row_keys, whole
from .parts import gathered

SHARED = (
    "generation_step", "group_id", "rank", "replica", "token_ids", "mask", "loss_mask", "rollout_logprobs", "old_logprobs",
    "reference_logprobs", "rollout_version_min", "rollout_version_max", "rollout_versions", "trainer_version", "turn",
    "advantages", "reward", "finish_reason", "prompt_ids", "prompt_text", "token_texts", "inclusion_probability",
    "mask_reason", "sampled_ids", "kv_versions", "router_agreement", "replayed", "prompt_tokens", "cached_tokens", "media",
    "pack_index", "pack_position", "queue_seconds", "generation_seconds",
)  # fmt: skip
"""Columns that are the same in every minibatch. entropy is not among them: it is of old in one row, of current in others."""


def joined(records: pa.Table) -> pa.Table:
    """The same rows in the same order, with parts of one row gathered and null values of the SHARED columns filled in.

    Values come from the row of the same (attempt, step, sequence_id) with minibatch null, else from that of minibatch 0.
    """
    records = gathered(records)
    minibatch = records["minibatch"]
    if minibatch.null_count == len(minibatch):
        return records
    # For each row with a minibatch, the index of the row that describes its sequence; -1 if there is none.
    order = pc.fill_null(records["minibatch"].cast(pa.int64()), -1).to_numpy()
    keys = row_keys(records)
    rank = np.lexsort((order, keys))
    first = np.concatenate(([True], keys[rank][1:] != keys[rank][:-1]))
    holder = rank[first][np.cumsum(first) - 1]
    result = np.full(len(keys), -1, np.int64)
    result[rank] = np.where(order[holder] <= 0, holder, -1)
    source = np.where((order >= 0) & (result != np.arange(len(keys))), result, -1)
    has_source = source >= 0
    index = pa.array(np.maximum(source, 0), mask=~has_source)
    for name in (name for name in SHARED if name in records.column_names):
        column = records[name]
        if 0 < column.null_count < len(column):
            place = records.schema.get_field_index(name)
            # The column, with each null replaced by the value of the row in `index`; it stays null if `index` is null.
            array = whole(column)
            rows = pc.if_else(pc.is_valid(array), pa.array(np.arange(len(array))), index)
            filled = pa.chunked_array([array.take(rows)])
            records = records.set_column(place, records.schema.field(name), filled)
    return records
