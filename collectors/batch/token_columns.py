"""Brings the per-token values of a Batch to one form: flat values, and a length for each sequence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import chain
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ratioscope.arrays import Booleans, Integers
from ratioscope.errors import SchemaError
from ratioscope.record import FIELDS, MASK_REASONS

from .breaths import breathing, pieces
from .host_copy import HostArray, Joined, Unread

Flat = Any
"""The values of all tokens, one sequence after the other: a numpy array, or a pyarrow array of strings."""
Lengths = Integers

NUMBERS = (int, float, np.number)
_NUMPY = {"bool": np.bool_, "int16": np.int16, "int32": np.int32, "int64": np.int64, "float32": np.float32}


@dataclass(frozen=True)
class Padded:
    """Values of shape `(B, T)`. Those behind the length of a row are padding."""

    values: NDArray[Any]
    """The array with its padding."""
    present: Booleans | None = None
    """False for each row without values, which becomes null; None: all rows have values."""

    @property
    def sequences(self) -> int:
        return len(self.values)

    def cut(self, lengths: Lengths) -> Ragged:
        """The rows without their padding."""
        width = self.values.shape[1]
        present = np.ones(len(lengths), bool) if self.present is None else self.present
        shortened = np.where(present, np.minimum(lengths, width), 0)
        if (shortened == width).all():
            return Ragged(self.values.reshape(-1), shortened, present)
        return Ragged(self.values[np.arange(width) < shortened[:, None]], shortened, present)


@dataclass(frozen=True)
class Ragged:
    """Values of rows of different lengths, one row after the other."""

    values: Flat
    """The arrays cover `sum(lengths)` tokens."""
    lengths: Lengths
    present: Booleans
    """True for each row with values; the others have length 0 and become null."""

    @property
    def sequences(self) -> int:
        return len(self.lengths)

    def arrow(self) -> pa.ListArray[Any]:
        """The rows as an Arrow list column."""
        offsets = np.concatenate(([0], np.cumsum(self.lengths)))
        if offsets[-1] >= 1 << 31:
            raise SchemaError(f"{offsets[-1]} tokens in one batch; at most 2147483647 fit a column: log it in parts")
        nulls = None if self.present.all() else pa.array(~self.present)
        return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pa.array(_owned(self.values)), mask=nulls)


Column = Padded | Ragged


def is_ragged(value: Any) -> bool:
    """True for one item per sequence (lists, arrays, None), False for an array or a flat list of numbers."""
    if isinstance(value, Joined):
        return True
    if not isinstance(value, (list, tuple)):
        return False
    first = next((item for item in value if item is not None and not isinstance(item, Unread)), None)
    return first is None or (not isinstance(first, NUMBERS) and shape_of(first) != ())


def shape_of(value: Any) -> tuple[int, ...]:
    """The shape of an array, tensor or flat list; () of anything else."""
    if isinstance(value, (list, tuple)):
        return (len(value),)
    return tuple(getattr(value, "shape", ()))


def token_column(name: str, value: Any, cuts: Lengths | None) -> Column:
    """A per-token argument of `Collector.log` as a column, in the type of its field."""
    if is_ragged(value):
        return _ragged(name, value)
    if FIELDS[name].kind == "string":
        return _packed(name, strings(value), cuts)
    array = typed(name, unwrapped(value))
    if array.ndim == 2:
        return Padded(array)
    if array.ndim == 1:
        return _packed(name, array, cuts)
    raise SchemaError(f"{name} has shape {array.shape}; wanted (sequences, tokens), a list per sequence, or (tokens,)")


def cut_points(value: Any, tokens: int | None, sequences: int | None) -> Lengths:
    """Lengths, from lengths or from cumulative lengths, which begin with 0 and end with the number of packed tokens.

    `[0, n]` could mean one sequence, or two of which the first is empty: `sequences` decides; without it, it means one.
    """
    lengths = np.asarray(unwrapped(value))
    if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or not len(lengths):
        raise SchemaError(
            f"lengths has shape {lengths.shape} and type {lengths.dtype}; wanted one integer per sequence"
        )
    lengths = lengths.astype(np.int64)
    steps = np.diff(lengths)
    cumulative = tokens is not None and lengths[0] == 0 and lengths[-1] == tokens and bool((steps >= 0).all())
    if cumulative and sequences != len(lengths):
        return cast(Lengths, steps)
    if (lengths < 0).any():
        raise SchemaError(f"lengths holds {lengths.min()}; a sequence has at least 0 tokens")
    return lengths


def token_counts(column: pa.Array[Any] | pa.ChunkedArray[Any]) -> Lengths:
    """Tokens of each row of a list column; 0 where it is null."""
    return np.asarray(pc.list_value_length(column).fill_null(0), np.int64)


def unwrapped(value: Any) -> Any:
    """The value; of a copy on its way to host memory, once it is there."""
    if isinstance(value, Unread):
        raise SchemaError(value.reason)
    return value.wait() if isinstance(value, HostArray) else value


def typed(name: str, value: Any) -> NDArray[Any]:
    """The values in the type of the field `name`. None among floats is NaN; float64 beyond float32 becomes infinite."""
    kind = FIELDS[name].kind
    with np.errstate(over="ignore", invalid="ignore"):
        array = np.asarray(value, np.float32 if kind == "float32" and isinstance(value, list) else None)
        if array.dtype.kind not in "biuf" and array.size:
            raise SchemaError(f"{name} holds {array.dtype} values; wanted {kind}")
        if kind == "bool":
            if array.dtype.kind == "f" and np.isnan(array).any():
                raise SchemaError(f"{name} holds NaN; wanted 1 where a token counts and 0 where it does not")
            return cast(NDArray[Any], array != 0)
        if kind.startswith("int") and array.size:
            limits = np.iinfo(_NUMPY[kind])
            if array.dtype.kind == "f" or array.min() < limits.min or array.max() > limits.max:
                raise SchemaError(f"{name} holds {array.dtype} values in [{array.min()}, {array.max()}]; wanted {kind}")
        if name == "mask_reason" and array.size and not 0 <= array.min() <= array.max() < len(MASK_REASONS):
            raise SchemaError(
                f"mask_reasons holds {array.min()} to {array.max()}; wanted the numbers 0 to {len(MASK_REASONS) - 1} of "
                "ratioscope.record.MASK_REASONS"
            )
        return array.astype(_NUMPY[kind], copy=False)


def _ragged(name: str, rows: list[Any] | Joined) -> Ragged:
    if isinstance(rows, Joined):
        values = _typed_list(name, rows.values) if isinstance(rows.values, list) else typed(name, rows.values.wait())
        return Ragged(values, np.array(rows.lengths, np.int64), np.array(rows.present, bool))
    present = np.array([row is not None for row in rows], bool)
    if FIELDS[name].kind == "string":
        texts = [[] if row is None else unwrapped(row) for row in rows]
        return Ragged(strings(chain.from_iterable(texts)), _counts(texts), present)
    arrays = [typed(name, [] if row is None else unwrapped(row)) for row in breathing(rows)]
    wrong = next((array.shape for array in arrays if array.ndim != 1), None)
    if wrong is not None:
        raise SchemaError(f"{name} holds a sequence of shape {wrong}; wanted one value per token")
    return Ragged(_concatenated(name, map(np.concatenate, pieces(arrays))), _counts(arrays), present)


def _typed_list(name: str, numbers: list[Any]) -> NDArray[Any]:
    return _concatenated(name, (typed(name, piece) for piece in pieces(numbers)))


def _concatenated(name: str, arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate([np.empty(0, _NUMPY[FIELDS[name].kind]), *arrays])


def _packed(name: str, values: Flat, cuts: Lengths | None) -> Ragged:
    lengths = np.array([len(values)]) if cuts is None else cuts
    if lengths.sum() != len(values):
        raise SchemaError(f"{name} packs {len(values)} tokens, but lengths add up to {lengths.sum()}")
    return Ragged(values, lengths, np.ones(len(lengths), bool))


def strings(texts: Iterable[Any]) -> pa.Array[Any]:
    """Texts as an Arrow column. Lone surrogates, which UTF-8 cannot hold, become escapes.

    The texts are converted in pieces, and the trainer may take the interpreter after each: a million texts take 0.1 s.
    """
    made: list[pa.Array[Any]] = [pa.array([], pa.string()), *map(_strings, pieces(texts))]
    return made[-1] if len(made) <= 2 else pa.concat_arrays(made)


def _strings(texts: list[Any]) -> pa.Array[Any]:
    try:
        return pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.array(
            [None if t is None else t.encode("utf-8", "backslashreplace").decode() for t in texts], pa.string()
        )


def _owned(values: Flat) -> Flat:
    """Values in memory of their own: Arrow keeps reading a buffer, and the next call of `log` overwrites those of the pool."""
    return values.copy() if isinstance(values, np.ndarray) and not values.flags.owndata else values


def _counts(rows: list[Any]) -> Lengths:
    return np.array([len(row) for row in rows], np.int64)
