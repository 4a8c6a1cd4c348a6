"""Sequences of one call under one id. Readers take rows of one id for one sequence, so that of two samples one would be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.arrays import Booleans

from .batch import POLICY_COLUMNS

WANTED = "wanted an id for each sample"


def other_samples(records: pa.RecordBatch) -> Booleans:
    """True for each row that has the id of an earlier row, and other log-probs of a policy that both have.

    Copies of a row stay, and so do rows that complete each other. Slices of a sequence have `positions`.
    """
    other = np.zeros(records.num_rows, bool)
    ids = records.column("sequence_id")
    if records.column("positions").null_count < len(ids) or pc.count_distinct(ids).as_py() == len(ids):
        return other
    numbers = ids.dictionary_encode().indices.to_numpy()
    first = np.unique(numbers, return_index=True)[1][numbers]
    for row in np.flatnonzero(first != np.arange(len(ids))).tolist():
        other[row] = any(_differ(records.column(name), first[row], row) for name in POLICY_COLUMNS)
    return other


def _differ(column: pa.Array[Any], row: int, other: int) -> bool:
    values, others = column[row].values, column[other].values
    if values is None or others is None:
        return False
    return not np.array_equal(
        values.to_numpy(zero_copy_only=False), others.to_numpy(zero_copy_only=False), equal_nan=True
    )
