"""The input and output of a dialect: arrays of shape (rows, positions), and an Evaluation.

Every dialect module has the same members in the same order:

    VERSIONS    the trainer's versions whose own output was compared with the dialect's
    PRESETS     preset name -> that trainer's configuration mapping
    CANONICAL   their metric name -> our canonical full name, or None where we have no such metric
    NOTES       their metric name -> how it differs from the canonical metric
    parse       their configuration -> typed settings and warnings; raises ConfigError
    write       settings -> their configuration syntax, with the flags that must be set beside it
    evaluate    (batch, config, *, version, kind, micro_batches) -> Evaluation

Dialects share no averaging, on purpose: trainers differ in how they take a masked mean.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Array, Booleans, Integers
from ratioscope.errors import ConfigError, SchemaError

from .record_arrays import record_arrays

MicroBatches = Sequence[Sequence[int]]
"""Row numbers of each micro-batch, in the order the trainer visits them."""

PER_TOKEN = ("rollout_logprobs", "old_logprobs", "current_logprobs", "mask", "advantages")


@dataclass(frozen=True)
class Evaluation:
    """A trainer's metrics, weights and mask for one batch. Arrays have shape (rows, positions)."""

    metrics: dict[str, float]
    """The trainer's own metric name -> value."""
    weights: Array | None
    """The weight of each loss term; shape (rows, 1) if there is one per sequence. None: the trainer applies none."""
    mask: Booleans
    """The tokens that stay in the loss."""
    warnings: tuple[str, ...] = ()
    """Settings that do harm, and arrays that the batch lacks."""
    losses: Mapping[str, float] = field(default_factory=dict)
    """Other scalars that the trainer computes."""
    arrays: Mapping[str, Array] = field(default_factory=dict)
    """Other arrays that the trainer computes."""
    lacks: tuple[str, ...] = ()
    """Arrays that the weights or the mask are computed from and the batch lacks: then neither is the trainer's."""


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
        if value is None:
            have = [known for known in PER_TOKEN if _is_known(getattr(self, known))] + sorted(self.extra)
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
    return DialectBatch(
        mask=inside & _mask(arrays.pop("mask", inside), shape),
        lengths=lengths.astype(np.int64),
        **{name: _floating(name, arrays.pop(name, None), shape) for name in PER_TOKEN if name != "mask"},
        extra=arrays,
    )


def _is_known(array: Array | None) -> bool:
    """False for an absent array, and for NaN in its place, see absent_arrays.completed."""
    return array is not None and not np.isnan(array).all()


def not_allowed(field_name: str, value: object, allowed: Iterable[object] | str) -> ConfigError:
    """The error for a setting that its trainer rejects. It names the field, its value and the allowed values."""
    choices = allowed if isinstance(allowed, str) else "one of " + ", ".join(repr(each) for each in allowed)
    return ConfigError(f"{field_name} is {value!r}; allowed: {choices}")


def _shape(arrays: Mapping[str, Array]) -> tuple[int, int]:
    for name in PER_TOKEN:
        if name in arrays and name != "advantages":
            if arrays[name].ndim == 2:
                rows, positions = arrays[name].shape
                return rows, positions
            expected = "(rows, positions), or flat with 'response_lengths' beside it"
            raise SchemaError(f"'{name}' has shape {arrays[name].shape}; wanted {expected}")
    raise SchemaError(f"the batch has none of {PER_TOKEN[:3]}; it has {sorted(arrays)}")


def _mask(mask: Array, shape: tuple[int, int]) -> Booleans:
    if mask.shape != shape:
        raise SchemaError(f"'mask' has shape {mask.shape}, the log-probs have {shape}")
    if not np.isin(mask, (0, 1)).all():
        raise SchemaError("'mask' holds values other than 0 and 1")
    return mask.astype(np.bool_)


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
