"""Turns a Batch into rows in the Record schema. Runs on the writer's thread, without a Python loop over tokens."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.arrays import Booleans, Integers
from ratioscope.errors import SchemaError
from ratioscope.kept_settings import kept
from ratioscope.record import FIELDS, MOST_POSITIONS, TOKEN_FIELDS, arrow_schema, reading_fault
from ratioscope.topk import ARGUMENTS, TOPK

from ..process.counts import reason_of
from .batch import POLICY_COLUMNS, Batch
from .breaths import breathing
from .host_copy import HostArray, Unread
from .prompt_columns import prompt_columns
from .row_lengths import agreed
from .shared_ids import WANTED, other_samples
from .text_policy import name_or_digest
from .token_columns import (
    Lengths,
    Padded,
    Ragged,
    cut_points,
    is_ragged,
    strings,
    token_column,
    token_counts,
    unwrapped,
)
from .topk_columns import topk_column
from .unfit_values import described, fitting_column, fitting_numbers, words

SCHEMA = arrow_schema()
_SEQUENCE_ARGUMENTS = {
    "sequence_ids": "sequence_id", "group_ids": "group_id", "rewards": "reward", "finish_reasons": "finish_reason",
    "prompt_texts": "prompt_text", "generation_step": "generation_step", "trainer_version": "trainer_version",
    "replica": "replica", "extra": "extra", "replayed": "replayed", "prompt_tokens": "prompt_tokens",
    "cached_tokens": "cached_tokens", "media": "media", "pack_index": "pack_index", "pack_position": "pack_position",
    "queue_seconds": "queue_seconds", "generation_seconds": "generation_seconds",
}  # fmt: skip
_TOKEN_ARGUMENTS = {name: name for name in TOKEN_FIELDS} | {"turns": "turn", "mask_reasons": "mask_reason"}
_EITHER = ("advantages", "rollout_versions")
"""Arguments that may be one value for all, one per sequence, or one per token."""
_INT64 = np.iinfo(np.int64)
READING = "reading:"
"""Prefix of the readings' names among a batch's values: reading:<name>."""
SELDOM = 1000
"""One in so many ways to drop as many sequences is seldom."""
_LIKE = POLICY_COLUMNS[0]
"""The column whose type the values of a reading have."""


@dataclass(frozen=True)
class Rows:
    """The rows of a batch."""

    records: pa.RecordBatch
    """In the Record schema, without sequences whose columns disagree."""
    offered: int
    """Sequences in the batch, those that were left out included."""
    fault: str | None
    """Fault of the first sequence that was left out; None if none was."""
    tokens_left_out: int = 0
    """Tokens of the sequences that were left out, by the lengths that the others agree with."""
    readings: Mapping[str, pa.Array[Any]] = field(default_factory=dict)
    """Name of a reading -> the log-probs of each row, null where it has none; TOPK -> its lists."""
    reading_faults: tuple[str, ...] = ()
    """Faults of readings that were left out. They lose no row."""
    column_faults: tuple[str, ...] = ()
    """Faults of values that do not fit their column and are null there. They lose no row."""
    topk_faults: tuple[str, ...] = ()
    """Faults of top-k that was left out. They lose no row."""

    @property
    def first_fault(self) -> str | None:
        """The words of one fault; None if there is none."""
        others = (*self.column_faults, *self.reading_faults, *self.topk_faults)
        return next(iter((*([self.fault] if self.fault else []), *others)), None)


def rows_of(batch: Batch, attempt: int) -> Rows:
    """The rows of a batch, without those whose columns disagree; SchemaError if nothing in it can be trusted."""
    given = {n: value for n, value in batch.values.items() if not n.startswith(READING) and n not in ARGUMENTS}
    faults = [words(name, value.reason) for name, value in given.items() if isinstance(value, Unread)]
    values = {_TOKEN_ARGUMENTS.get(n, n): value for n, value in given.items() if not isinstance(value, Unread)}
    cuts = _cuts(values)
    per_sequence = {name: values.pop(name, None) for name in _EITHER if not _is_per_token(values.get(name), cuts)}
    given_columns = ((name, values[name]) for name in TOKEN_FIELDS if values.get(name) is not None)
    fitting = ((name, fitting_column(name, value, cuts, faults)) for name, value in given_columns)
    columns = {name: column for name, column in fitting if column is not None}
    lined_up = agreed(columns, cuts)
    lengths, fault, sound = lined_up.lengths, lined_up.fault, lined_up.sound
    rows = len(lengths)
    faults += lined_up.column_faults
    cut = {n: column.cut(lengths) if isinstance(column, Padded) else column for n, column in lined_up.columns.items()}
    if (nowhere := _nowhere(cut.get("positions"), rows)).any():
        fault = (
            fault or f"positions of sequence {np.flatnonzero(nowhere)[0]} hold places outside 0 to {MOST_POSITIONS - 1}"
        )
        sound &= ~nowhere
    arrays: dict[str, pa.Array[Any]] = {name: column.arrow() for name, column in cut.items()}
    keys = _keys(batch, attempt, rows)
    arrays |= keys | _sequence_columns(values, rows, faults)
    arrays |= described("prompt_ids", faults, prompt_columns, values, rows, faults)
    arrays["sequence_id"] = pc.coalesce(arrays["sequence_id"], keys["sequence_id"])
    versions, advantages = (per_sequence.get(name) for name in ("rollout_versions", "advantages"))
    arrays |= described("rollout_versions", faults, _versions, versions, cut, rows, faults)
    if advantages is not None:
        arrays |= described("advantages", faults, _advantages, advantages, rows, faults)
    records = pa.RecordBatch.from_arrays(
        [arrays[f.name] if f.name in arrays else pa.nulls(rows, f.type) for f in SCHEMA], schema=SCHEMA
    )
    read, reading_faults = _readings(batch, cuts, lengths)
    topk, topk_faults = topk_column(batch.values, lengths)
    read |= {} if topk is None else {TOPK: topk}
    if (other := other_samples(records)).any():
        fault = (
            fault or f"sequence {np.flatnonzero(other)[0]} has the id of an earlier one, and other log-probs; {WANTED}"
        )
        sound &= ~other
    if not sound.all():
        fault = f"{fault}{_all_of_one_end(records, ~sound)}"
        records = records.filter(pa.array(sound))
        read = {name: column.filter(pa.array(sound)) for name, column in read.items()}
    left_out, column_faults = int(lengths[~sound].sum()), tuple(dict.fromkeys(faults))
    return Rows(records, rows, fault, left_out, read, reading_faults, column_faults, tuple(topk_faults))


def _all_of_one_end(records: pa.RecordBatch, dropped: Booleans) -> str:
    """Words for dropped sequences that are all those of one finish reason, where chance seldom does that; else nothing."""
    reasons = records.column("finish_reason").to_pylist()
    count, (end, *others) = int(dropped.sum()), {reasons[at] for at in np.flatnonzero(dropped)}
    by_chance = count == len(reasons) or len(reasons) < SELDOM and math.comb(len(reasons), count) < SELDOM
    if end is None or others or reasons.count(end) != count or by_chance:  # of a million rows comb has 300,000 digits
        return ""
    all_of = f"all {count} sequences that ended by {name_or_digest(end)}"
    return f"; {all_of} are dropped, and none of the other {len(reasons) - count}"


def _advantages(value: Any, rows: int, faults: list[str]) -> dict[str, pa.Array[Any]]:
    numbers = _numbers("advantages", value, rows, pa.float32(), faults)
    return {"advantages": pa.ListArray.from_arrays(pa.array(np.arange(rows + 1), pa.int32()), numbers)}


def _readings(batch: Batch, cuts: Lengths | None, lengths: Lengths) -> tuple[dict[str, pa.Array[Any]], tuple[str, ...]]:
    """(reading -> its lists, faults of those left out). A reader finds and counts lists of another length than the sequence."""
    read, faults = dict[str, "pa.Array[Any]"](), list[str]()
    for argument, value in batch.values.items():
        if not argument.startswith(READING):
            continue
        name = argument.removeprefix(READING)
        try:
            if fault := reading_fault(name):
                raise SchemaError(fault)
            column = token_column(_LIKE, value, cuts)
            if column.sequences != len(lengths):
                raise SchemaError(f"the reading {name} has {column.sequences} sequences, {len(lengths)} were expected")
            read[name] = (column.cut(lengths) if isinstance(column, Padded) else column).arrow()
        except (SchemaError, TypeError, ValueError) as error:
            faults.append(f"reading {name[:60]}: {error}")
    return read, tuple(faults)


def of_attempt(attempt: int, records: pa.RecordBatch) -> pa.RecordBatch:
    """The rows as those of this attempt."""
    index = SCHEMA.get_field_index("attempt")
    return records.set_column(index, SCHEMA.field("attempt"), _repeat(attempt, "attempt", records.num_rows))


def tokens_of(records: pa.RecordBatch | pa.Table) -> int:
    """Response positions of all rows, masked ones included. A row has as many as the longest log-probs in it."""
    return int(np.maximum.reduce([token_counts(records.column(name)) for name in POLICY_COLUMNS]).sum())


def _nowhere(positions: Ragged | None, rows: int) -> Booleans:
    """True for each row with a token whose place no response has."""
    if positions is None:
        return np.zeros(rows, bool)
    outside = (positions.values < 0) | (positions.values >= MOST_POSITIONS)
    ends = np.cumsum(positions.lengths)
    before = np.searchsorted(np.flatnonzero(outside), np.stack((ends - positions.lengths, ends)))
    return cast(Booleans, before[1] > before[0])


def _cuts(values: Mapping[str, Any]) -> Lengths | None:
    if values.get("lengths") is None:
        return None
    flat = (values[name] for name in POLICY_COLUMNS if values.get(name) is not None and not is_ragged(values[name]))
    tokens = next((_size(value) for value in flat if not isinstance(value, HostArray) or value.ndim == 1), None)
    given = (values[name] for name in _SEQUENCE_ARGUMENTS if values.get(name) is not None)
    sequences = next((_size(value) for value in given if isinstance(value, (list, HostArray))), None)
    return cut_points(values["lengths"], tokens, sequences)


def _size(value: list[Any] | HostArray) -> int:
    return len(value) if isinstance(value, list) else int(value.array.size)


def _is_per_token(value: Any, cuts: Lengths | None) -> bool:
    """True for a value per token, of a kind that may be given per sequence or per token."""
    if value is None or isinstance(value, (int, float, Mapping)):
        return False
    if is_ragged(value):
        return True
    if isinstance(value, HostArray) and value.ndim == 2:
        return bool(value.array.shape[1] != 1)
    return cuts is not None and isinstance(value, (list, HostArray)) and _size(value) == int(cuts.sum()) != len(cuts)


def _keys(batch: Batch, attempt: int, rows: int) -> dict[str, pa.Array[Any]]:
    ids = (f"{batch.step}-{batch.label}-{index}" for index in range(batch.first_index, batch.first_index + rows))
    return {
        "attempt": _repeat(attempt, "attempt", rows),
        "step": _repeat(batch.step, "step", rows),
        "minibatch": _repeat(batch.minibatch, "minibatch", rows),
        "rank": _repeat(batch.rank, "rank", rows),
        "sequence_id": strings(breathing(ids)),
    }


def _sequence_columns(values: Mapping[str, Any], rows: int, faults: list[str]) -> dict[str, pa.Array[Any]]:
    columns: dict[str, pa.Array[Any]] = {}
    for argument, name in _SEQUENCE_ARGUMENTS.items():
        if (value := values.get(argument)) is not None:
            columns |= described(argument, faults, _sequence_column, argument, name, value, rows, faults)
    return columns


def _sequence_column(argument: str, name: str, value: Any, rows: int, faults: list[str]) -> dict[str, pa.Array[Any]]:
    if FIELDS[name].kind != "string":
        return {name: _numbers(argument, value, rows, SCHEMA.field(name).type, faults)}
    as_text = _json if name == "extra" else str
    if isinstance(value, HostArray):
        value = value.wait().reshape(-1).tolist()
    if not isinstance(value, list):
        value = [value] * rows
    given, unread = breathing(_checked(argument, value, rows)), list[str]()
    column = strings(_text(item, as_text, unread) for item in given)
    faults += [words(argument, reason) for reason in unread[:1]]
    return {name: column}


def _text(item: Any, as_text: Callable[[Any], str], unread: list[str]) -> str | None:
    try:
        return None if item is None else as_text(unwrapped(item))
    except Exception as error:  # the trainer's own `str` may raise anything
        unread.append(str(error) if isinstance(error, SchemaError) else reason_of(error))
        return None


def _numbers(argument: str, value: Any, rows: int, kind: pa.DataType, faults: list[str]) -> pa.Array[Any]:
    """`_every_number` in the type of the column, null where the type does not hold the number."""

    def made(given: Any, count: int) -> pa.Array[Any]:
        return _every_number(argument, given, count).cast(kind)

    column: pa.Array[Any] | None = fitting_numbers(argument, value, rows, made, faults)
    unknown: pa.Array[Any] = pa.array([None] * rows, kind)
    return unknown if column is None else column


def _every_number(argument: str, value: Any, rows: int) -> pa.Array[Any]:
    """One number per sequence: from one for all, a list (None: unknown) or an array of any shape with as many values."""
    if isinstance(value, list):
        scalars = [None if item is None else np.asarray(unwrapped(item)).item() for item in breathing(value)]
        column: pa.Array[Any] = pa.array(_checked(argument, scalars, rows))
        return column
    array = np.array(unwrapped(value))  # a copy: Arrow would go on reading a buffer that is used again
    if array.dtype.kind not in "biuf":
        raise SchemaError(f"{argument} is {array.dtype}; wanted a number per sequence")
    column = pa.array(_checked(argument, np.repeat(array, rows) if array.ndim == 0 else array.reshape(-1), rows))
    return column


def _checked(argument: str, values: Any, rows: int) -> Any:
    if len(values) != rows:
        raise SchemaError(f"{argument} has {len(values)} values for {rows} sequences")
    return values


def _versions(value: Any, cut: Mapping[str, Ragged], rows: int, faults: list[str]) -> dict[str, pa.Array[Any]]:
    """Oldest and newest weights of each sequence: as given, or over the sampled tokens where given per token."""
    if value is not None:
        pair = value if isinstance(value, Mapping) else {"min": value, "max": value}
        return {
            f"rollout_version_{which}": _numbers("rollout_versions", pair[which], rows, pa.int64(), faults)
            for which in ("min", "max")
        }
    if "rollout_versions" not in cut:
        return {}
    column, mask = cut["rollout_versions"], cut.get("mask")
    usable = mask is not None and bool((mask.lengths == column.lengths).all())
    sampled = mask.values if mask is not None and usable else np.ones(len(column.values), bool)
    oldest = _extreme(np.minimum, np.where(sampled, column.values, _INT64.max), column.lengths, _INT64.max)
    newest = _extreme(np.maximum, np.where(sampled, column.values, _INT64.min), column.lengths, _INT64.min)
    return {"rollout_version_min": oldest, "rollout_version_max": newest}


def _extreme(take: np.ufunc, values: Integers, lengths: Lengths, neutral: int) -> pa.Array[Any]:
    """min or max of each row; null where a row has no sampled token."""
    starts = np.cumsum(lengths) - lengths
    of_row = np.full(len(lengths), neutral, np.int64)
    filled = lengths > 0  # reduceat at an empty row would read the next row's first value
    if filled.any():
        of_row[filled] = take.reduceat(values, starts[filled])
    return pa.array(of_row, mask=of_row == neutral)


def _repeat(value: int | None, name: str, rows: int) -> pa.Array[Any]:
    repeated: pa.Array[Any] = pa.repeat(pa.scalar(value, SCHEMA.field(name).type), rows)
    return repeated


def _json(value: Any) -> str:
    """The value as JSON; cut like a configuration where it holds itself or is nested beyond what JSON can hold."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, default=_kept)
    except (ValueError, TypeError, RecursionError):
        return json.dumps(_kept(value))


def _kept(value: Any) -> Any:
    return kept({"": value}).settings[""]
