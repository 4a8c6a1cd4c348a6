"""Records as flat arrays: the rows of one gap, their tokens in one array. There is no Python loop over rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from ratioscope.arrays import Booleans, Floats, Integers, Singles
from ratioscope.record import POLICIES, kin, sides

from ..metric import SAMPLED
from ..pieces import repeated

pc: Any = pyarrow.compute
ArrowColumn = Any
"""pyarrow Array or ChunkedArray. `Any`, like pyarrow.compute: the stubs need value types, which depend on column names here."""


@dataclass(frozen=True)
class GapRows:
    """The rows on which a gap is measured.

    A row whose lists differ in length keeps the length of the earlier policy's list; the other list reads NaN, so that the
    tokens are counted as set aside.
    """

    gap: str
    rows: Integers
    """Indices of the rows in the table."""
    lengths: Integers
    """The number of tokens of each row."""
    earlier: Singles
    """The earlier logprob of every token, shape (tokens,), in nats."""
    later: Singles
    """The later logprob of every token."""
    mask: Booleans
    """True for each sampled token (in the mask)."""
    entropy: Singles | None
    """The entropy of the later policy at every token, in nats; None if not recorded."""
    advantage: Singles | None = None
    """The advantage of every token; None if not recorded, or if no metric of the gap reads it."""
    stands_for: Floats | None = None
    """Number of rows that each row represents, 1 / inclusion probability; None if every row is recorded."""

    @property
    def starts(self) -> Integers:
        """Index of each row's first token."""
        return (
            np.concatenate(([0], np.cumsum(self.lengths)[:-1])).astype(np.int64) if len(self.lengths) else self.lengths
        )


def gap_rows(records: pa.Table, gap: str, others: Sequence[GapRows] = ()) -> GapRows:
    """The rows that have both policies of the gap. `measured_rows` says which rows of a sequence count.

    others: of other gaps of these records. Their arrays of the same tokens are used again.
    """
    rows = measured_rows(records, gap)
    if not len(rows):
        return GapRows(gap, rows, rows, *_NOTHING)
    own, present = [f"{policy}_logprobs" for policy in sides(gap)], records.column_names
    table = taken(records.select([name for name in (*own, "mask", "entropy", "advantages") if name in present]), rows)
    lengths = list_lengths(table[own[0]])
    alike = [each for each in others if np.array_equal(each.rows, rows) and np.array_equal(each.lengths, lengths)]
    known = {
        f"{policy}_logprobs": values
        for each in alike
        for policy, values in zip(sides(each.gap), (each.earlier, each.later), strict=True)
    }
    earlier, later = (known[name] if name in known else flat_floats(table[name], lengths) for name in own)
    return GapRows(
        gap,
        rows,
        lengths,
        earlier,
        later,
        mask=alike[0].mask if alike else _flat_mask(table, lengths),
        entropy=_entropy(records, table, rows, lengths, gap),
        advantage=_advantage(table, lengths) if kin(gap) in SAMPLED and "advantages" in present else None,
        stands_for=alike[0].stands_for if alike else stands_for(records, rows),
    )


_NOTHING = (np.empty(0, np.float32), np.empty(0, np.float32), np.empty(0, np.bool_), None)


def measured_rows(records: pa.Table, gap: str) -> Integers:
    """Indices of the rows that have both sides of the gap.

    Gaps with `current`, such as total and drift: all of them. Any other gap, such as the mismatch, is the same in every
    minibatch, so a sequence counts once: by its rows with minibatch null, else by those of its first minibatch.
    """
    columns, present = [f"{policy}_logprobs" for policy in sides(gap)], records.column_names
    if not all(name in present for name in columns):
        return np.empty(0, np.int64)
    both = pc.and_(pc.is_valid(records[columns[0]]), pc.is_valid(records[columns[1]])).to_numpy()
    rows = np.flatnonzero(both)
    minibatch = records["minibatch"] if "minibatch" in present else None
    if "current" in sides(gap) or minibatch is None or minibatch.null_count == len(minibatch):
        return rows
    order: Integers = pc.fill_null(minibatch.cast(pa.int64()), -1).to_numpy()[rows]
    key = row_keys(records)[rows]
    first = np.full(int(key.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, key, order)
    chosen: Integers = rows[order == first[key]]
    return chosen


@dataclass(frozen=True)
class Groups:
    """The distinct (attempt, step) of some rows, ascending."""

    attempts: Integers
    """The attempt of each group."""
    steps: Integers
    """The step of each group."""
    of_row: Integers
    """The group of each row."""


def step_groups(records: pa.Table, rows: Integers) -> Groups:
    """The groups of these rows."""
    attempt = records["attempt"].to_numpy()[rows].astype(np.int64)
    step = records["step"].to_numpy()[rows].astype(np.int64)
    pairs, codes = distinct(attempt, step)
    return Groups(pairs[:, 0], pairs[:, 1], codes)


def distinct(*columns: Integers) -> tuple[Integers, Integers]:
    """(distinct rows of the columns, ascending; the place of each row among them)."""
    table = np.stack(columns, axis=1)
    if len(table) and (table == table[0]).all():  # as in a trainer, which measures one step; sorting rows is slow
        return table[:1], np.zeros(len(table), np.int64)
    pairs, codes = np.unique(table, axis=0, return_inverse=True)
    return pairs, codes.reshape(-1)


def taken(column: Any, rows: Integers) -> Any:
    """These rows (ascending) of a column or table; itself if these are all, because `take` puts its chunks together."""
    return column if len(rows) == len(column) else column.take(rows)


def is_recorded(records: pa.Table, column: str) -> bool:
    """True if some row has a value of the column."""
    return column in records.column_names and records[column].null_count < len(records)


def list_lengths(column: ArrowColumn) -> Integers:
    """Number of elements of each row's list; 0 for null."""
    lengths: Integers = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return lengths


def flat_values(column: ArrowColumn, lengths: Integers, fill: object) -> ArrowColumn:
    """The elements of all lists in one array, with `fill` for rows that are null or whose length is not that in `lengths`."""
    fits = (list_lengths(column) == lengths) & pc.is_valid(column).to_numpy(zero_copy_only=False)
    if fits.all():  # chunk by chunk: one Arrow list array has 2^31 - 1 elements at most
        return pc.list_flatten(column)
    array = whole(column)
    chosen = pc.list_flatten(array.filter(pa.array(fits)))
    token_fits = repeated(fits, lengths)
    place = np.cumsum(token_fits) - 1
    taken = chosen.take(pa.array(place, mask=~token_fits))
    return pc.if_else(pa.array(token_fits), taken, pa.scalar(fill, array.type.value_type))


def flat_floats(column: ArrowColumn, lengths: Integers) -> Singles:
    """The elements of all lists as float32; NaN for null elements and for rows whose length is not that in `lengths`."""
    flat: Singles = flat_values(column.cast(pa.list_(pa.float32())), lengths, float("nan")).to_numpy(
        zero_copy_only=False
    )
    return flat


def whole(column: ArrowColumn) -> ArrowColumn:
    """The column as one Arrow array without chunks."""
    combined = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    return combined if isinstance(combined, pa.Array) else combined.chunk(0)


def encoded(column: ArrowColumn) -> tuple[tuple[str, ...], Integers]:
    """(distinct values as strings, code of each element); -1 for null."""
    values, codes = coded(column)
    return tuple(str(key) for key in values.to_pylist()), codes


def coded(column: ArrowColumn) -> tuple[ArrowColumn, Integers]:
    """(distinct values, code of each element); -1 for null."""
    array = whole(column)
    array = array if pa.types.is_dictionary(array.type) else array.dictionary_encode()
    codes: Integers = pc.fill_null(array.indices.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return array.dictionary, codes


def stands_for(records: pa.Table, rows: Integers) -> Floats | None:
    """Number of rows that each of these rows represents; None if no row was kept by chance."""
    if "inclusion_probability" not in records.column_names:
        return None
    probability = pc.fill_null(records["inclusion_probability"], 1.0).to_numpy()[rows]
    usable = np.where((probability > 0) & (probability <= 1), probability, 1.0)
    return None if (usable == 1).all() else 1 / usable


def _flat_mask(table: pa.Table, lengths: Integers) -> Booleans:
    if "mask" not in table.column_names or table["mask"].null_count == len(table):
        return np.ones(int(lengths.sum()), np.bool_)
    flat = flat_values(table["mask"].cast(pa.list_(pa.uint8())), lengths, 1)
    mask: Booleans = pc.fill_null(flat, 0).to_numpy(zero_copy_only=False).astype(np.bool_)
    return mask


def _entropy(records: pa.Table, table: pa.Table, rows: Integers, lengths: Integers, gap: str) -> Singles | None:
    """The later policy's entropy. The recorded one is of `current` where the row has it, so old's only where it has not."""
    if (
        sides(gap)[1] not in POLICIES[1:]
        or "entropy" not in table.column_names
        or table["entropy"].null_count == len(table)
    ):
        return None
    values = flat_floats(table["entropy"], lengths)
    if sides(gap)[1] == "old" and "current_logprobs" in records.column_names:
        of_current = pc.is_valid(records["current_logprobs"]).to_numpy()[rows]
        values = np.where(repeated(of_current, lengths), np.float32(np.nan), values)
    return values


def _advantage(table: pa.Table, lengths: Integers) -> Singles | None:
    """The advantage of every token; a list of length 1 is repeated for all tokens of its row."""
    column = table["advantages"]
    if column.null_count == len(column):
        return None
    own, values = list_lengths(column), flat_floats(column, lengths)
    single = (own == 1) & (lengths != 1)
    if not single.any():
        return values
    one = np.full(len(lengths), np.nan, np.float32)
    one[single] = flat_floats(column.filter(pa.array(single)), own[single])
    return np.where(repeated(single, lengths), repeated(one, lengths), values)


def row_keys(records: pa.Table) -> Integers:
    """An integer per row; equal for rows with equal attempt, step and sequence_id."""
    keys, identity = coded(records["sequence_id"])
    _, group = distinct(*(records[name].to_numpy().astype(np.int64) for name in ("attempt", "step")))
    key = group * (len(keys) + 1) + identity + 1
    return np.unique(key, return_inverse=True)[1] if group.any() else key
