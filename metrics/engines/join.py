"""Rows of one sequence completed from each other: what a minibatch's row lacks comes from the row of the sequence's facts."""

import numpy as np
import pyarrow as pa

from .arrow_columns import ArrowColumn, Integers, pc, row_keys, whole
from .parts import gathered

SHARED = (
    "generation_step", "group_id", "rank", "replica", "token_ids", "mask", "loss_mask", "rollout_logprobs", "old_logprobs",
    "reference_logprobs", "rollout_version_min", "rollout_version_max", "rollout_versions", "trainer_version", "turn",
    "advantages", "reward", "finish_reason", "prompt_text", "token_texts", "inclusion_probability",
)  # fmt: skip
"""What does not change from minibatch to minibatch. entropy is not here: old's is not current's."""


def joined(records: pa.Table) -> pa.Table:
    """The same rows in the same order, parts of one gathered; rows with a minibatch have what they lacked of SHARED.

    It comes from the row with minibatch null of the same (attempt, step, sequence_id), else from that of minibatch 0.
    """
    records = gathered(records)
    minibatch = records["minibatch"]
    if minibatch.null_count == len(minibatch):
        return records
    source = _facts_row(records)
    lacking = source >= 0
    index = pa.array(np.maximum(source, 0), mask=~lacking)
    for name in (name for name in SHARED if name in records.column_names):
        column = records[name]
        if 0 < column.null_count < len(column):
            place = records.schema.get_field_index(name)
            filled = _filled(column, index)
            records = records.set_column(place, records.schema.field(name), filled)
    return records


def _facts_row(records: pa.Table) -> Integers:
    """For each row with a minibatch the index of the row that holds its sequence's facts; -1 if there is none."""
    order = pc.fill_null(records["minibatch"].cast(pa.int64()), -1).to_numpy()
    keys = row_keys(records)
    rank = np.lexsort((order, keys))
    first = np.concatenate(([True], keys[rank][1:] != keys[rank][:-1]))
    holder = rank[first][np.cumsum(first) - 1]
    result = np.full(len(keys), -1, np.int64)
    result[rank] = np.where(order[holder] <= 0, holder, -1)
    return np.where((order >= 0) & (result != np.arange(len(keys))), result, -1)


def _filled(column: ArrowColumn, index: ArrowColumn) -> ArrowColumn:
    """The column, with nulls replaced by the row that `index` names (null: by nothing)."""
    array = whole(column)
    wanted = pc.if_else(pc.is_valid(array), pa.array(np.arange(len(array))), index)
    return pa.chunked_array([array.take(wanted)])
