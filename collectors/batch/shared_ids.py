"""Sequences of one step under one id. Readers take rows of one id for one sequence, so that of two samples one would be lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.arrays import Booleans

from .batch import POLICY_COLUMNS

WANTED = "wanted an id for each sample"


def other_samples(rows: pa.RecordBatch | pa.Table) -> Booleans:
    """True for each row that has the id and minibatch of an earlier row, and other log-probs of a policy that both have.

    rows: of one step. Copies of a row are left out, and so are rows that complete each other. Slices of a sequence have
    `positions`.
    """
    other = np.zeros(rows.num_rows, bool)
    ids = rows.column("sequence_id")
    if rows.column("positions").null_count < len(ids) or pc.count_distinct(ids).as_py() == len(ids):
        return other
    for first, row in _repeated(rows):
        other[row] = any(_differ(rows.column(name), first, row) for name in POLICY_COLUMNS)
    return other


def _repeated(rows: pa.RecordBatch | pa.Table) -> list[tuple[int, int]]:
    """(the first row with its id and minibatch, the row) of each row that is not this first one."""
    keys = zip(rows.column("minibatch").to_pylist(), rows.column("sequence_id").to_pylist(), strict=True)
    known: dict[tuple[Any, Any], int] = {}
    first = [known.setdefault(key, row) for row, key in enumerate(keys)]
    return [(one, row) for row, one in enumerate(first) if one != row]


def _differ(column: pa.Array[Any] | pa.ChunkedArray[Any], row: int, other: int) -> bool:
    values, others = column[row].values, column[other].values
    if values is None or others is None:
        return False
    return not np.array_equal(
        values.to_numpy(zero_copy_only=False), others.to_numpy(zero_copy_only=False), equal_nan=True
    )
