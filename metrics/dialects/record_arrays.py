"""The Records of one step as the arrays that a dialect reads."""

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.arrays import Integers
from ratioscope.errors import SchemaError

from ..engines.arrow_columns import flat_values, list_lengths

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
        if _recorded(records, column) and (column in NEVER_LEFT_OUT or not records[column].null_count):
            arrays[name] = _flat(records, column, kind, lengths)
    if _recorded(records, "extra"):
        arrays |= _raw(records["extra"], lengths)
    if _recorded(records, "group_id"):
        arrays["group_ids"] = _codes(records["group_id"])
    if _recorded(records, "reward"):
        arrays["rewards"] = records["reward"].to_numpy()
    if _recorded(records, "trainer_version"):
        arrays["current_version"] = np.asarray(pc.max(records["trainer_version"]).as_py())
    return arrays


def _recorded(records: pa.Table, column: str) -> bool:
    return column in records.column_names and records[column].null_count < len(records)


def _lengths(records: pa.Table) -> Integers:
    """The number of tokens of each row, from the first policy on record."""
    for column in TOKENS:
        if column.endswith("_logprobs") and _recorded(records, column):
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


def _codes(column: "pa.ChunkedArray[Any]") -> Integers:
    """A number for each value, in order of appearance."""
    _, first, codes = np.unique(column.to_numpy().astype(str), return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[codes], np.int64)
