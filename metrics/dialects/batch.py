"""The batch that a dialect reads: arrays of shape (rows, positions), from a mapping or from the Records of one step."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.arrays import Array, Booleans, Integers
from ratioscope.errors import SchemaError

from ..engines.arrow_columns import flat_values, is_recorded, list_lengths

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

A = TypeVar("A", bound="DataclassInstance")
MicroBatches = Sequence[Sequence[int]]
"""Row numbers of each micro-batch, in the order the trainer visits them."""

PER_TOKEN = ("rollout_logprobs", "old_logprobs", "current_logprobs", "mask", "advantages")


TOKENS: dict[str, tuple[str, pa.DataType]] = {
    "rollout_logprobs": ("rollout_logprobs", pa.float32()),
    "old_logprobs": ("old_logprobs", pa.float32()),
    "current_logprobs": ("current_logprobs", pa.float32()),
    "reference_logprobs": ("reference_logprobs", pa.float32()),
    "entropy": ("entropy", pa.float32()),
    "mask": ("mask", pa.uint8()),
    "advantages": ("advantages", pa.float32()),
    "rollout_versions": ("versions", pa.int64()),
}
"""Per-token column of a Record -> its name in a dialect's batch, and its type there."""
NEVER_LEFT_OUT = ("rollout_logprobs", "old_logprobs", "mask")
"""Columns that raise if only some rows have them; a null mask has a meaning."""
RAW = "raw_rollout_logprobs"
"""In `extra`: the sampler's log-probs before temperature and masks, of which a trainer logs metrics of its own."""


@dataclass(frozen=True)
class DialectBatch:
    """The arrays of one batch, shape (rows, positions), in the given floating dtype; log-probs in nats; None if absent.

    Positions outside the mask keep their values. Positions that pad ragged input are 0, with mask False.
    """

    mask: Booleans
    """The tokens that count."""
    lengths: Integers
    """Tokens per row: those outside the mask count, padding does not."""
    rollout_logprobs: Array | None = None
    old_logprobs: Array | None = None
    current_logprobs: Array | None = None
    advantages: Array | None = None
    extra: Mapping[str, Array] = field(default_factory=dict)
    """The other arrays of the batch, by name. Flat arrays with one value per token are padded like the log-probs."""

    @property
    def shape(self) -> tuple[int, int]:
        """(rows, positions)."""
        rows, positions = self.mask.shape
        return rows, positions

    def needed(self, name: str) -> Array:
        """The array of that name; SchemaError if the batch lacks it."""
        value = getattr(self, name) if name in PER_TOKEN else self.extra.get(name)
        if value is None:  # NaN throughout takes the place of an absent array
            have = [
                known
                for known in PER_TOKEN
                if (array := getattr(self, known)) is not None and not np.isnan(array).all()
            ] + sorted(self.extra)
            raise SchemaError(f"the batch has no '{name}', which this setting reads: log {name}; it has {have}")
        return np.asarray(value)

    def flat(self, array: Array) -> Array:
        """An array of shape (rows, positions) without its padding, row after row."""
        return array[np.arange(array.shape[1]) < self.lengths[:, None]]


BatchLike = DialectBatch | pa.Table | Mapping[str, Any]
"""The batch argument of every `evaluate`; see batch_arrays."""


def batch_arrays(batch: BatchLike) -> DialectBatch:
    """The batch with its arrays checked and shaped (rows, positions).

    A mapping has arrays of shape (rows, positions), or flat arrays beside `response_lengths` (tokens per row). Without `mask`
    all tokens count. `advantages` may have one value per row. A table has the Records of one step.
    """
    if isinstance(batch, DialectBatch):
        return batch
    if isinstance(batch, pa.Table):
        batch = record_arrays(batch)
    arrays = {name: np.asarray(value) for name, value in batch.items() if value is not None}
    lengths = arrays.get("response_lengths")
    if lengths is not None:
        arrays = {name: _padded(name, array, lengths) for name, array in arrays.items() if name != "response_lengths"}
    shape = _shape(arrays)
    if lengths is None:
        lengths = np.full(shape[0], shape[1])
    inside = np.arange(shape[1]) < lengths[:, None]
    mask = arrays.pop("mask", inside)
    if mask.shape != shape:
        raise SchemaError(f"'mask' has shape {mask.shape}, the log-probs have {shape}")
    if not np.isin(mask, (0, 1)).all():
        raise SchemaError("'mask' holds values other than 0 and 1")
    return DialectBatch(
        mask=inside & mask.astype(np.bool_),
        lengths=lengths.astype(np.int64),
        **{name: _floating(name, arrays.pop(name, None), shape) for name in PER_TOKEN if name != "mask"},
        extra=arrays,
    )


def row_groups(micro_batches: MicroBatches | int | None, rows: int, kind: str | None = None) -> list[Integers]:
    """The row numbers of each micro-batch. SchemaError for rows that the batch does not have.

    micro_batches: the row numbers of each micro-batch, or the number of consecutive rows in each. If it is None, a `kind` that
    ends in `_mbN` cuts N rows each; any other kind means one micro-batch of all rows.
    """
    _, named, suffix = (kind or "").rpartition("_mb")
    if micro_batches is None and named and suffix.isdigit():
        micro_batches = int(suffix)
    if micro_batches is None:
        return [np.arange(rows)]
    if isinstance(micro_batches, Sequence):
        groups = [np.asarray(group, dtype=np.int64) for group in micro_batches]
        if any(len(group) == 0 or group.min() < 0 or group.max() >= rows for group in groups):
            raise SchemaError(f"a micro-batch is empty or names a row outside 0..{rows - 1}: {micro_batches!r}")
        return groups
    if micro_batches < 1:
        raise SchemaError(f"a micro-batch of {micro_batches} rows; wanted at least 1")
    return [np.arange(first, min(first + micro_batches, rows)) for first in range(0, rows, micro_batches)]


def rows_of(arrays: A, rows: Integers) -> A:
    """The dataclass with these rows of each of its arrays."""
    values = ((each.name, getattr(arrays, each.name)) for each in fields(arrays))
    return replace(arrays, **{name: value[rows] for name, value in values if isinstance(value, np.ndarray)})


def selected(batch: DialectBatch, rows: Integers) -> DialectBatch:
    """The batch with these rows only. Arrays of `extra` are cut if they have one entry per row, else kept whole."""
    count = len(batch.mask)
    extra = {name: value[rows] if value.shape[:1] == (count,) else value for name, value in batch.extra.items()}
    return replace(rows_of(batch, rows), extra=extra)


def record_arrays(records: pa.Table) -> dict[str, Any]:
    """Flat arrays and `response_lengths`, the input of `batch_arrays`; columns without a value are left out.

    records: one step and one minibatch, with all policies of a sequence in one row. A null mask means all tokens; a null
    element of another list becomes NaN. A column that only some rows have is left out, so that the settings that read
    other columns stand; rollout and old raise then. Prompt groups become numbers (`group_ids`); `current_version` is the
    newest trainer version.
    """
    for column in ("step", "minibatch"):
        kinds = len(records[column].unique()) if column in records.column_names else 1
        if kinds > 1:
            raise SchemaError(f"a dialect reads one {column} at a time; these records hold {kinds}: select one")
    lengths = _lengths(records)
    arrays: dict[str, Any] = {"response_lengths": lengths}
    for column, (name, kind) in TOKENS.items():
        if is_recorded(records, column) and (column in NEVER_LEFT_OUT or not records[column].null_count):
            arrays[name] = _flat(records, column, kind, lengths)
    if is_recorded(records, "extra"):
        arrays |= _raw(records["extra"], lengths)
    if is_recorded(records, "group_id"):
        # A number for each value, in order of appearance.
        names = records["group_id"].to_numpy().astype(str)
        _, first, codes = np.unique(names, return_index=True, return_inverse=True)
        arrays["group_ids"] = np.asarray(np.argsort(np.argsort(first))[codes], np.int64)
    if is_recorded(records, "reward"):
        arrays["rewards"] = records["reward"].to_numpy()
    if is_recorded(records, "trainer_version"):
        arrays["current_version"] = np.asarray(pc.max(records["trainer_version"]).as_py())
    return arrays


def _lengths(records: pa.Table) -> Integers:
    """The number of tokens of each row, from the first policy on record."""
    for column in TOKENS:
        if column.endswith("_logprobs") and is_recorded(records, column):
            return list_lengths(records[column])
    raise SchemaError(f"the records hold no log-probs; they have the columns {records.column_names}")


def _flat(records: pa.Table, column: str, kind: pa.DataType, lengths: Integers) -> Any:
    """The values of all tokens in one array; one advantage per row is repeated. Any: the array has the column's own dtype."""
    values, own = records[column].cast(pa.list_(kind)), list_lengths(records[column])
    if column == "advantages" and values.null_count == 0 and (own == 1).all():
        return np.repeat(flat_values(values, own, pa.scalar(0, kind)).to_numpy(zero_copy_only=False), lengths)
    wrong = own != lengths
    if column == "mask":
        wrong &= pc.is_valid(values).to_numpy()
    if wrong.any():
        raise SchemaError(f"'{column}' is not as long as the log-probs in {int(wrong.sum())} of {len(records)} rows")
    return flat_values(values, lengths, pa.scalar(1, kind)).to_numpy(zero_copy_only=False)


def _raw(extra: "pa.ChunkedArray[Any]", lengths: Integers) -> dict[str, Any]:
    """RAW (rows, positions), NaN where a row has none and behind its end; nothing if no row has any."""
    named = np.flatnonzero(np.array([f'"{RAW}"' in (text or "") for text in extra.to_pylist()], bool))
    if not len(named):
        return {}
    raw = np.full((len(lengths), int(lengths.max(initial=0))), np.nan, np.float32)
    for row in named.tolist():
        values = json.loads(extra[row].as_py()).get(RAW)
        if values is None:
            continue
        if not isinstance(values, list) or len(values) != lengths[row]:
            found = f"{len(values)} values" if isinstance(values, list) else type(values).__name__
            raise SchemaError(
                f"'{RAW}' in extra has {found} in a row of {lengths[row]} tokens; wanted a list, one per token"
            )
        raw[row, : len(values)] = np.asarray(values, np.float32)  # null reads as NaN
    return {RAW: raw}


def _shape(arrays: Mapping[str, Array]) -> tuple[int, int]:
    for name in PER_TOKEN:
        if name in arrays and name != "advantages":
            if arrays[name].ndim == 2:
                rows, positions = arrays[name].shape
                return rows, positions
            expected = "(rows, positions), or flat with 'response_lengths' beside it"
            raise SchemaError(f"'{name}' has shape {arrays[name].shape}; wanted {expected}")
    raise SchemaError(f"the batch has none of {PER_TOKEN[:3]}; it has {sorted(arrays)}")


def _floating(name: str, array: Array | None, shape: tuple[int, int]) -> Array | None:
    """The array in float32 or float64, shape (rows, positions). Half precision becomes float32 without loss."""
    if array is None:
        return None
    if name == "advantages" and array.shape in ((shape[0],), (shape[0], 1)):
        array = np.broadcast_to(array.reshape(-1, 1), shape)
    if array.shape != shape:
        raise SchemaError(f"'{name}' has shape {array.shape}, wanted {shape}")
    return array if array.dtype in (np.float32, np.float64) else array.astype(np.float32)


def _padded(name: str, array: Array, lengths: Array) -> Array:
    """Flat values with one per token, padded with 0 to (rows, positions); any other array unchanged."""
    tokens = int(lengths.sum())
    if array.shape != (tokens,):
        if name in PER_TOKEN and array.shape != lengths.shape:
            raise SchemaError(f"'{name}' has shape {array.shape}, the response lengths add up to {tokens}")
        return array
    if name not in PER_TOKEN and array.shape == lengths.shape:
        return array
    padded = np.zeros((len(lengths), int(lengths.max(initial=0))), array.dtype)
    padded[np.arange(padded.shape[1]) < lengths[:, None]] = array
    return padded
