"""Values that their column cannot hold, such as an id of 64 bits: the rows at fault lose the column, and no more.

Log-probs, masks and positions decide what is measured, and a fault in them drops rows. The other columns only describe them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa

from ratioscope.errors import SchemaError

from ..process.counts import reason_of
from .host_copy import Joined
from .row_lengths import DECIDING
from .token_columns import Column, Lengths, Padded, is_ragged, shape_of, token_column, typed, unwrapped

P = ParamSpec("P")
T = TypeVar("T")
UNFIT = (SchemaError, TypeError, ValueError, OverflowError, pa.ArrowException)
"""A value that its field cannot hold raises one of them."""


def fitting_column(name: str, value: Any, cuts: Lengths | None, faults: list[str]) -> Column | None:
    """The column of a per-token argument, null at rows that its field cannot hold; None where no row can be told.

    faults: the words of the first fault are added.
    """
    try:
        return token_column(name, value, cuts)
    except UNFIT as error:
        if name in DECIDING:
            raise
        faults.append(words(name, str(error)))
    return _or_none(lambda: _fitting_rows(name, value, cuts))


def _fitting_rows(name: str, value: Any, cuts: Lengths | None) -> Column | None:
    rows = _rows(value, cuts)
    kept = [_or_none(lambda row=row: token_column(name, [row], None)) for row in rows]  # type: ignore[misc]
    fits = np.fromiter((column is not None for column in kept), np.bool_, len(kept))
    if not fits.any():
        return None
    if len(shape_of(value)) == 2:
        return Padded(typed(name, np.where(fits[:, None], np.stack(rows), 0)), fits)
    return token_column(name, [row if fit else None for row, fit in zip(rows, fits, strict=True)], None)


def fitting_numbers(
    name: str, value: Any, rows: int, made: Callable[[Any, int], pa.Array[Any]], faults: list[str]
) -> Any:
    """The column of one number per sequence, null where `made` refuses a number; None where it refuses all.

    made: takes the value and the number of sequences. faults: the argument's name and the words of the first fault are added.
    Another number of values than of sequences is refused as a whole.
    """
    try:
        return made(value, rows)
    except UNFIT as error:
        given = np.asarray(unwrapped(value), object) if not isinstance(value, list) else value
        items = list(given.reshape(-1)) if isinstance(given, np.ndarray) else given
        is_single = isinstance(given, np.ndarray) and given.ndim == 0
        if len(items) != rows and not is_single:
            raise
        faults.append(words(name, str(error)))
    kept = [_or_none(lambda item=item: made([item], 1)) for item in items]  # type: ignore[misc]
    known = next((column for column in kept if column is not None), None)
    if known is None:
        return None
    parts = [pa.nulls(1, known.type) if column is None else column for column in kept]
    return pa.concat_arrays(parts * rows if is_single else parts)


def _rows(value: Any, cuts: Lengths | None) -> list[Any]:
    """The values of each sequence; [] where they cannot be told apart."""
    if isinstance(value, Joined):
        values = value.values if isinstance(value.values, list) else value.values.wait()
        ends = np.cumsum(value.lengths)
        parts = [values[start:end] for start, end in zip(ends - value.lengths, ends, strict=True)]
        return [part if there else None for part, there in zip(parts, value.present, strict=True)]
    if is_ragged(value):
        return list(value)
    array = np.asarray(unwrapped(value))
    if array.ndim == 2:
        return list(array)
    if cuts is None or array.ndim != 1 or cuts.sum() != len(array):
        return []
    return np.split(array, np.cumsum(cuts)[:-1])


def described(
    name: str, faults: list[str], made: Callable[P, dict[str, T]], *given: P.args, **named: P.kwargs
) -> dict[str, T]:
    """The columns of an argument that only describes rows; {}, and the words of the fault are added, if they cannot be made."""
    try:
        return made(*given, **named)
    except Exception as error:
        said = str(error) if isinstance(error, SchemaError) else reason_of(error)
        faults.append(words(name, said))
        return {}


def words(name: str, said: str) -> str:
    """The words about an argument, with its name."""
    return said if said.startswith(name) else f"{name}: {said}"


def _or_none(made: Callable[[], T]) -> T | None:
    try:
        return made()
    except UNFIT:
        return None
