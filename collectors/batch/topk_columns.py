"""Brings the top-k of a Batch to lists of a row per sequence: counts per token, ids, and the log-probs of each policy at them.

An argument is an array (B, T, k), an array (tokens, k) of all sequences one after the other, or one item per sequence: an array
(T, k) or a list with a list for each token. A fault costs top-k alone: of a row where it is the row's, else of the call.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ratioscope.arrays import Array
from ratioscope.errors import SchemaError
from ratioscope.topk import ARGUMENTS, COUNTS, IDS, MOST_TOPK, topk_schema

from .breaths import breathing
from .host_copy import HostArray
from .token_columns import Lengths, unwrapped
from .unfit_values import UNFIT

_ALIKE = "wanted log-probs at each of the ids"
_INT32 = np.iinfo(np.int32)
Row = Mapping[str, NDArray[Any]]
"""Column -> its values of one sequence."""


def topk_column(values: Mapping[str, Any], lengths: Lengths) -> tuple[pa.StructArray | None, list[str]]:
    """(the lists of each row as one column of structs, null where a row has none; the first fault). None where no row has any.

    values: the arguments of `log`. lengths: tokens of each row.
    """
    given, faults = {name: values[name] for name in ARGUMENTS if values.get(name) is not None}, list[str]()
    if not given:
        return None, faults
    rows: list[Row | None] = []
    try:
        if IDS not in given:
            raise SchemaError(f"{next(iter(given))} is given without {IDS}; wanted the ids that these log-probs are of")
        items = {name: _items(name, value, lengths) for name, value in given.items()}
        for index in breathing(range(len(lengths))):
            rows.append(_row({name: own[index] for name, own in items.items()}, int(lengths[index]), index, faults))
    except UNFIT as error:
        return None, [str(error)]
    return (_structs(rows) if any(rows) else None), faults[:1]


def _items(name: str, value: Any, lengths: Lengths) -> list[Any]:
    """One item for each sequence."""
    if isinstance(value, list):
        if len(value) != len(lengths):
            raise SchemaError(f"{name} has {len(value)} items; wanted one for each of {len(lengths)} sequences")
        return value
    array = unwrapped(value)
    shape: tuple[int, ...]
    shape, longest = getattr(array, "shape", ()), int(lengths.max(initial=0))
    if len(shape) == 3 and shape[0] == len(lengths) and shape[1] >= longest:
        return [array[row, :length] for row, length in enumerate(lengths)]
    if len(shape) == 2 and shape[0] == lengths.sum():
        return np.split(array, np.cumsum(lengths)[:-1])
    raise SchemaError(
        f"{name} has shape {shape}; wanted ({len(lengths)}, {longest} or more, k), or ({lengths.sum()}, k), or a list"
        " with an item (tokens, k) for each sequence"
    )


def _row(items: Mapping[str, Any], tokens: int, index: int, faults: list[str]) -> Row | None:
    """The lists of a sequence; None, with the fault, where they do not fit."""
    if items[IDS] is None:
        return None
    try:
        grids = {name: _grid(name, item) for name, item in items.items() if item is not None}
        ids = grids[IDS]
        wrong = next((name for name, grid in grids.items() if grid.shape != ids.shape), None)
        if wrong is not None:
            raise SchemaError(f"{wrong} has shape {grids[wrong].shape} where {IDS} has {ids.shape}; {_ALIKE}")
        if len(ids) != tokens:
            raise SchemaError(f"{IDS} has {len(ids)} tokens; wanted the {tokens} of the sequence")
        if ids.shape[1] > MOST_TOPK:
            raise SchemaError(
                f"{IDS} has {ids.shape[1]} alternatives a token; wanted {MOST_TOPK} at most, the likeliest"
            )
    except UNFIT as error:
        faults.append(f"sequence {index}: {error}")
        return None
    there = ids >= 0
    is_full = bool(there.all())
    flat = {name: grid.reshape(-1) if is_full else grid[there] for name, grid in grids.items()}
    return {COUNTS: there.sum(1, dtype=np.int16), **flat}


def _grid(name: str, item: Any) -> Array:
    """The values of a sequence, (tokens, k): whole numbers, -1 where absent, for ids; else float32, NaN where absent."""
    array = unwrapped(item) if isinstance(item, HostArray | np.ndarray) else _of_lists(name, item)
    if array.ndim != 2 or array.dtype.kind not in "iuf":
        raise SchemaError(f"{name} has shape {array.shape} and type {array.dtype}; wanted numbers, (tokens, k)")
    if name != IDS:
        with np.errstate(over="ignore", invalid="ignore"):
            return array.astype(np.float32, copy=False)
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), -1, array)
    if array.size and (array.max() > _INT32.max or (array.dtype.kind == "f" and (array % 1 != 0).any())):
        raise SchemaError(f"{name} holds {array.max()}, or a fraction; wanted ids of tokens, int32")
    return np.maximum(array, -1).astype(np.int32, copy=False)


def _of_lists(name: str, item: Any) -> Array:
    """Lists of different lengths, one for each token, as a padded array."""
    if not isinstance(item, list) or not all(token is None or isinstance(token, list | HostArray) for token in item):
        found = type(item).__name__ if not isinstance(item, list) else "list of other things"
        raise SchemaError(f"{name} holds a {found}; wanted (tokens, k), or a list for each token of a sequence")
    tokens = [() if token is None else token if isinstance(token, list) else unwrapped(token) for token in item]
    counts = np.array([len(token) for token in tokens], np.int64)
    most = int(counts.max(initial=0))
    if most > MOST_TOPK:
        raise SchemaError(f"{name} has {most} alternatives at a token; wanted {MOST_TOPK} at most, the likeliest")
    padded = np.full((len(tokens), most), np.nan)
    padded[np.arange(most) < counts[:, None]] = np.array(list(chain.from_iterable(tokens)), np.float64)
    return padded


def _structs(rows: list[Row | None]) -> pa.StructArray:
    """The lists of all rows as a column of structs."""
    fields = [field for field in topk_schema() if field.name in (COUNTS, *ARGUMENTS)]
    columns = [_lists(field.name, field.type.value_type, rows) for field in fields]
    absent = pa.array([row is None for row in rows])
    return pa.StructArray.from_arrays(columns, fields=fields, mask=absent)


def _lists(name: str, kind: pa.DataType, rows: list[Row | None]) -> pa.Array[Any]:
    own = [None if row is None else row.get(name) for row in rows]
    lengths = [0 if each is None else len(each) for each in own]
    offsets = np.concatenate(([0], np.cumsum(lengths)))
    if offsets[-1] >= _INT32.max:
        raise SchemaError(f"{offsets[-1]} alternatives in one call; wanted {_INT32.max} at most: log it in parts")
    flat = np.empty(offsets[-1], kind.to_pandas_dtype())
    # one concatenation of all would keep the interpreter for tens of milliseconds
    for row in breathing(range(len(own))):
        if (values := own[row]) is not None:
            flat[offsets[row] : offsets[row + 1]] = values
    mask = pa.array([each is None for each in own])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(flat, kind), mask=mask)
