"""Records as flat arrays: the rows of one gap, their tokens end to end. No Python loop touches a row."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ratioscope.record import GAPS

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class GapRows:
    """The rows on which a gap is measured: `rows` indexes the table, `lengths` are their tokens, the rest is flat.

    Rows whose lists disagree in length keep the earlier policy's length, and read NaN where the other is unknown, so that
    they are counted as set aside.
    """

    gap: str
    rows: Integers
    lengths: Integers
    earlier: Floats
    later: Floats
    mask: Flags
    entropy: Floats | None

    @property
    def starts(self) -> Integers:
        """Index of each row's first token."""
        return (
            np.concatenate(([0], np.cumsum(self.lengths)[:-1])).astype(np.int64) if len(self.lengths) else self.lengths
        )


def gap_rows(records: pa.Table, gap: str) -> GapRows:
    """The rows that have both policies of the gap; see `measured_rows` for which of several rows of a sequence count."""
    rows = measured_rows(records, gap)
    earlier_name, later_name = (f"{policy}_logprobs" for policy in GAPS[gap])
    columns = [name for name in (earlier_name, later_name, "mask", "entropy") if name in records.column_names]
    table = records.select(columns)
    if len(rows) < len(table):
        table = table.take(rows)
    lengths = list_lengths(table[earlier_name])
    return GapRows(
        gap,
        rows,
        lengths,
        earlier=flat_floats(table[earlier_name], lengths),
        later=flat_floats(table[later_name], lengths),
        mask=_flat_mask(table, lengths),
        entropy=_entropy(records, table, rows, lengths, gap),
    )


def measured_rows(records: pa.Table, gap: str) -> Integers:
    """Indices of the rows that have both sides of the gap.

    total and drift: all of them. mismatch does not change from minibatch to minibatch, so of the rows of a sequence it
    takes those with minibatch null, else those of its first minibatch.
    """
    sides = [f"{policy}_logprobs" for policy in GAPS[gap]]
    if not set(sides) <= set(records.column_names):
        return np.empty(0, np.int64)
    both = pc.and_(pc.is_valid(records[sides[0]]), pc.is_valid(records[sides[1]])).to_numpy()
    rows = np.flatnonzero(both)
    minibatch = records["minibatch"] if "minibatch" in records.column_names else None
    if gap != "mismatch" or minibatch is None or minibatch.null_count == len(minibatch):
        return rows
    order = minibatch.cast(pa.int64()).fill_null(-1).to_numpy()[rows]
    key = row_keys(records)[rows]
    first = np.full(int(key.max(initial=-1)) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, key, order)
    return rows[order == first[key]]


def step_codes(records: pa.Table, rows: Integers) -> tuple[Integers, Integers, Integers]:
    """(attempt of each group, step of each group, group of each row): groups are the distinct (attempt, step), in order."""
    attempt = records["attempt"].to_numpy()[rows].astype(np.int64)
    step = records["step"].to_numpy()[rows].astype(np.int64)
    pairs, codes = np.unique(np.stack((attempt, step), axis=1), axis=0, return_inverse=True)
    return pairs[:, 0], pairs[:, 1], codes.reshape(-1)


def list_lengths(column: pa.ChunkedArray) -> Integers:
    """Number of elements of each row's list; 0 for null."""
    return pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)


def flat_values(column: pa.ChunkedArray, lengths: Integers, fill: pa.Scalar) -> pa.ChunkedArray | pa.Array:
    """All lists end to end, `fill` for rows that are null or of another length than `lengths` says."""
    own = list_lengths(column)
    fits = (own == lengths) & pc.is_valid(column).to_numpy()
    if fits.all():
        return pc.list_flatten(column)
    chosen = pc.list_flatten(column.filter(pa.array(fits)))
    chosen = chosen.combine_chunks() if isinstance(chosen, pa.ChunkedArray) else chosen
    place = np.full(int(lengths.sum()), -1, np.int64)
    token_fits = np.repeat(fits, lengths)
    place[token_fits] = np.arange(int(token_fits.sum()))
    index = pa.array(place, mask=~token_fits)
    return pc.if_else(pa.array(token_fits), chosen.take(index), fill)


def flat_floats(column: pa.ChunkedArray, lengths: Integers) -> Floats:
    """Flat float32 values; NaN for null elements and for rows that do not fit."""
    flat = flat_values(column.cast(pa.list_(pa.float32())), lengths, pa.scalar(np.float32(np.nan)))
    return flat.to_numpy(zero_copy_only=False) if isinstance(flat, pa.Array) else flat.to_numpy()


def _flat_mask(table: pa.Table, lengths: Integers) -> Flags:
    if "mask" not in table.column_names or table["mask"].null_count == len(table):
        return np.ones(int(lengths.sum()), np.bool_)
    flat = flat_values(table["mask"].cast(pa.list_(pa.uint8())), lengths, pa.scalar(1, pa.uint8()))
    return pc.fill_null(flat, 0).to_numpy().astype(np.bool_)


def _entropy(records: pa.Table, table: pa.Table, rows: Integers, lengths: Integers, gap: str) -> Floats | None:
    """The later policy's entropy. The recorded one is of `current` where the row has it, so old's only where it has not."""
    if "entropy" not in table.column_names or table["entropy"].null_count == len(table):
        return None
    values = flat_floats(table["entropy"], lengths)
    if GAPS[gap][1] == "old" and "current_logprobs" in records.column_names:
        of_current = pc.is_valid(records["current_logprobs"]).to_numpy()[rows]
        values = np.where(np.repeat(of_current, lengths), np.float32(np.nan), values)
    return values


def row_keys(records: pa.Table) -> Integers:
    """An integer per row, equal where attempt, step and sequence_id are."""
    identity = records["sequence_id"].combine_chunks().dictionary_encode()
    identity = identity.combine_chunks() if isinstance(identity, pa.ChunkedArray) else identity
    columns = (
        records["attempt"].to_numpy(),
        records["step"].to_numpy(),
        identity.indices.to_numpy(zero_copy_only=False),
    )
    _, keys = np.unique(np.stack([c.astype(np.int64) for c in columns], axis=1), axis=0, return_inverse=True)
    return keys.reshape(-1)
