"""The length of each sequence of a Batch, and the sequences whose columns disagree about it.

The length is the first of these that is known: the entry in `lengths`; the length in a ragged column of log-probs, a mask or
positions; the length in another ragged column, or one past the last true value of a padded `mask`, whichever is longer; the width
of the padded columns. So a list of texts that lacks the last token shortens no sequence whose mask has this token.

Padding behind the length is cut off, and holes inside are kept. A sequence whose log-probs, mask or positions disagree about its
length is dropped alone. Any other column only describes the tokens: if it disagrees, the sequence lacks this column.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Booleans, Integers
from ratioscope.errors import SchemaError

from .batch import POLICY_COLUMNS
from .token_columns import Column, Lengths, Padded, Ragged

DECIDING = (*POLICY_COLUMNS, "mask", "loss_mask", "positions")
"""Columns of tokens that decide what is measured: their faults drop rows."""


@dataclass(frozen=True)
class Agreed:
    """The columns of a batch, and the lengths on which they agree."""

    lengths: Lengths
    columns: Mapping[str, Column]
    """Those that only describe tokens are null at rows where they disagree."""
    sound: Booleans
    """True for each row whose deciding columns agree."""
    fault: str | None
    """The first disagreement of a deciding column in words; None without one."""
    column_faults: tuple[str, ...]
    """The first disagreement of each other column in words."""


def agreed(columns: Mapping[str, Column], cuts: Lengths | None) -> Agreed:
    """The lengths of all rows, and which columns disagree where. cuts: the argument `lengths`."""
    sequences = _sequences({name: column for name, column in columns.items() if name in DECIDING})
    faults = _misfits(columns, sequences, cuts)
    columns = {name: column for name, column in columns.items() if name not in faults}
    masked = None if cuts is not None else _masked_lengths(columns)
    lengths = _wanted_lengths(columns, cuts, masked, sequences)
    kept, sound = dict(columns), np.ones(sequences, bool)
    for name, column in columns.items():
        own, bad = _own_lengths(column), _disagrees(column, lengths)
        if name == "mask" and masked is not None:
            own, bad = np.where(bad, own, masked), bad | (masked > lengths)
        if not bad.any():
            continue
        row = int(np.flatnonzero(bad)[0])
        faults[name] = f"{name} of sequence {row} has {own[row]} tokens, {lengths[row]} were expected"
        if name in DECIDING:
            sound &= ~bad
        else:
            kept[name] = _without(column, bad)
    fault = next((faults[name] for name in faults if name in DECIDING), None)
    return Agreed(lengths, kept, sound, fault, tuple(words for name, words in faults.items() if name not in DECIDING))


def _misfits(columns: Mapping[str, Column], sequences: int, cuts: Lengths | None) -> dict[str, str]:
    """Columns that only describe tokens, and that have another shape than those that decide -> the fault in words."""
    is_width_the_length = cuts is None and all(isinstance(column, Padded) for column in columns.values())
    deciding = [column for name, column in columns.items() if name in DECIDING]
    widths = {column.values.shape[1] for column in deciding} if is_width_the_length else set()
    faults = dict[str, str]()
    for name, column in columns.items():
        if name not in DECIDING and column.sequences != sequences:
            faults[name] = f"{name} holds {column.sequences} sequences, {sequences} were expected"
        elif name not in DECIDING and isinstance(column, Padded) and widths and column.values.shape[1] not in widths:
            faults[name] = f"{name} is {column.values.shape[1]} tokens wide, {max(widths)} were expected"
    return faults


def _without(column: Column, rows: Booleans) -> Column:
    """The column, null at these rows."""
    if isinstance(column, Padded):
        return Padded(column.values, ~rows if column.present is None else column.present & ~rows)
    kept = np.repeat(~rows, column.lengths)
    values = column.values[kept] if isinstance(column.values, np.ndarray) else column.values.filter(pa.array(kept))
    return Ragged(values, np.where(rows, 0, column.lengths), column.present & ~rows)


def _sequences(columns: Mapping[str, Column]) -> int:
    counts = {name: column.sequences for name, column in columns.items()}
    if len(set(counts.values())) > 1:
        raise SchemaError(f"the columns hold different numbers of sequences: {counts}")
    return next(iter(counts.values()))


def _wanted_lengths(
    columns: Mapping[str, Column], cuts: Lengths | None, masked: Lengths | None, sequences: int
) -> Lengths:
    if cuts is not None:
        if len(cuts) != sequences:
            raise SchemaError(f"lengths has {len(cuts)} values for {sequences} sequences")
        return cuts
    deciding = _ragged_lengths({name: columns[name] for name in DECIDING if name in columns}, sequences)
    describing = _ragged_lengths({n: column for n, column in columns.items() if n not in DECIDING}, sequences)
    if masked is not None:
        describing = np.where(describing >= 0, np.maximum(describing, masked), -1)
    lengths = np.where(deciding >= 0, deciding, describing)
    return lengths if (lengths >= 0).all() else np.where(lengths >= 0, lengths, _padded_lengths(columns, masked))


def _ragged_lengths(columns: Mapping[str, Column], sequences: int) -> Integers:
    """The length of each row in the first ragged column that has the row; -1 where none has."""
    lengths = np.full(sequences, -1, np.int64)
    for column in columns.values():
        if isinstance(column, Ragged):
            lengths = np.where((lengths < 0) & column.present, column.lengths, lengths)
    return lengths


def _masked_lengths(columns: Mapping[str, Column]) -> Lengths | None:
    """One past the last true value of each row of a padded mask; None without one."""
    mask = columns.get("mask")
    if not isinstance(mask, Padded):
        return None
    width = mask.values.shape[1]
    if not width:
        return np.zeros(mask.sequences, np.int64)
    return np.where(mask.values.any(1), width - np.argmax(mask.values[:, ::-1], 1), 0)


def _padded_lengths(columns: Mapping[str, Column], masked: Lengths | None) -> Lengths | int:
    widths = {name: column.values.shape[1] for name, column in columns.items() if isinstance(column, Padded)}
    if len(set(widths.values())) > 1:  # most likely one of them is shifted by a token: never guess
        raise SchemaError(f"padded columns of different widths: {widths}; if that is meant, give lengths")
    return max(widths.values(), default=0) if masked is None else masked


def _own_lengths(column: Column) -> Integers:
    return column.lengths if isinstance(column, Ragged) else np.full(column.sequences, column.values.shape[1])


def _disagrees(column: Column, lengths: Lengths) -> Booleans:
    if isinstance(column, Padded):
        return cast(Booleans, lengths > column.values.shape[1])
    return cast(Booleans, column.present & (column.lengths != lengths))
