"""Gathers the parts of a row that several processes recorded: one row per (attempt, step, minibatch, sequence).

A part holds some columns of the sequence, or a slice of its tokens if ranks share them (context parallelism; the column
`positions` says which tokens). Tokens of a sliced sequence that no process recorded read as NaN, which is counted as set aside.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Integers
from ratioscope.record import FIELDS, TOKEN_FIELDS

from ..pieces import places, repeated
from .arrow_columns import ArrowColumn, is_recorded, list_lengths, pc, row_keys, whole

POSITIONS = "positions"
_FILL = {"float32": float("nan"), "bool": True, "int16": 0, "int32": 0, "int64": 0, "string": ""}
_LOWEST, _HIGHEST = ("rollout_version_min",), ("rollout_version_max",)


def gathered(records: pa.Table) -> pa.Table:
    """The table with the parts of each row gathered in the place of the first part; the table itself if no row is a part.

    If several parts have a whole value of a column, the first one counts. Slices are put at their positions.
    """
    sliced = is_recorded(records, POSITIONS)
    if not sliced and pc.count_distinct(records["sequence_id"]).as_py() == len(records):  # nearly always
        return records
    # The row of the result that each row is a part of, numbered in the order of first appearance.
    minibatch = records["minibatch"] if "minibatch" in records.column_names else None
    update = np.full(len(records), -1) if minibatch is None else pc.fill_null(minibatch.cast(pa.int64()), -1).to_numpy()
    key = row_keys(records) * (int(update.max(initial=-1)) + 2) + update + 1
    _, first, codes = np.unique(key, return_index=True, return_inverse=True)
    number = np.empty(len(first), np.int64)
    number[np.argsort(first)] = np.arange(len(first))
    row_of = number[codes]
    rows = int(row_of.max(initial=-1)) + 1
    if rows == len(records) and not sliced:
        return records
    places = _Places(records[POSITIONS], row_of, rows) if sliced else None
    columns = {}
    for name in records.column_names:
        column = whole(records[name])
        if name == POSITIONS:
            columns[name] = pa.nulls(rows, column.type)
        elif places is not None and name in TOKEN_FIELDS:
            columns[name] = places.gathered(name, column)
        else:
            columns[name] = _of_parts(name, column, row_of, rows)
    return pa.table(columns, schema=records.schema)


class _Places:
    """The place of every token of a slice in its gathered row. All gathered rows lie in one array; a place is a slot in it."""

    def __init__(self, positions: ArrowColumn, row_of: Integers, rows: int) -> None:
        array = whole(positions)
        self._row_of, self._rows = row_of, rows
        self._sliced = pc.is_valid(array).to_numpy(zero_copy_only=False)
        self._counts = np.where(self._sliced, list_lengths(array), 0)
        flat = pc.fill_null(pc.list_flatten(array), 0).to_numpy(zero_copy_only=False).astype(np.int64)
        of_token = repeated(row_of, self._counts)
        lengths = np.zeros(rows, np.int64)
        filled = np.flatnonzero(self._counts)
        last = np.maximum.reduceat(flat, (np.cumsum(self._counts) - self._counts)[filled]) if len(filled) else flat
        np.maximum.at(lengths, row_of[filled], last + 1)
        self._offsets = np.concatenate(([0], np.cumsum(lengths)))
        self._slots = self._offsets[of_token] + flat

    def gathered(self, name: str, column: ArrowColumn) -> ArrowColumn:
        """The column with its slices put together. Rows without a slice keep their value, and so do single values."""
        counts = list_lengths(column)
        valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
        as_slice = valid & self._sliced & (counts == self._counts)
        single = np.zeros(self._rows, bool)  # one value for the sequence, as advantages may be
        single[self._row_of[valid & ~as_slice]] = True
        as_slice &= ~single[self._row_of]
        if not as_slice.any():
            return _of_parts(name, column, self._row_of, self._rows)
        starts = np.cumsum(counts) - counts
        source = np.full(self._offsets[-1], -1, np.int64)
        token_of = repeated(as_slice, self._counts)
        inside = places(self._counts)
        source[self._slots[token_of]] = (repeated(starts, self._counts) + inside)[token_of]
        values = pc.list_flatten(column).take(pa.array(np.maximum(source, 0), mask=source < 0))
        held = np.zeros(self._rows, bool)
        held[self._row_of[as_slice]] = True
        offsets: Any = pa.array(self._offsets, pa.int32(), mask=np.append(~held, False))
        filled = pa.ListArray.from_arrays(offsets, pc.fill_null(values, _FILL[FIELDS[name].kind])).cast(column.type)
        others = _of_parts(name, column.filter(pa.array(~as_slice)), self._row_of[~as_slice], self._rows)
        return pc.if_else(pa.array(held), filled, others)


def _of_parts(name: str, column: ArrowColumn, row_of: Integers, rows: int) -> ArrowColumn:
    """For each gathered row the value of its first part that has one; for versions the lowest or highest value."""
    index = np.full(rows, -1, np.int64)
    valid = np.flatnonzero(pc.is_valid(column).to_numpy(zero_copy_only=False))
    if name in (*_LOWEST, *_HIGHEST) and len(valid):
        values = column.take(pa.array(valid)).to_numpy(zero_copy_only=False)
        valid = valid[np.argsort(values if name in _LOWEST else -values, kind="stable")]
    index[row_of[valid[::-1]]] = valid[::-1]  # the first is written last
    return column.take(pa.array(np.maximum(index, 0), mask=index < 0)) if len(column) else pa.nulls(rows, column.type)
