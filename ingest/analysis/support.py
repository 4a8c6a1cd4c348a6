"""The support of the tokens of a step: the likeliest tokens at each place with both sides' log-probs, beside the sampled ones.

A sequence whose sides were logged in several calls has the union of their ids; a log-prob that none of them has is NaN.
Rows of top-k of a sequence that is not on record, or of another length than it, are used by nobody.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa

from ratioscope.arrays import Array, Booleans, Floats, Integers
from ratioscope.errors import SchemaError
from ratioscope.metrics.engines.arrow_columns import (
    GapRows,
    flat_floats,
    flat_values,
    gap_rows,
    list_lengths,
    pc,
    row_keys,
    taken,
)
from ratioscope.metrics.pieces import places
from ratioscope.record import POLICIES, sides
from ratioscope.topk import COUNTS, IDS, MOST_TOPK

from ..rows.topk_rows import alternatives
from ..run import Run
from .step_rows import columns_of

MOST_PLACES = 1 << 22
"""Tokens times k of one piece; a sequence is never parted."""
MOST_WIDE = 2 * MOST_TOPK
"""The most alternatives of a token that are read: those of two sides. Rows may repeat a sequence any number of times."""


@dataclass(frozen=True)
class Support:
    """n response tokens of sequences with top-k on record, masked ones too; k is the most alternatives that one of them has."""

    ids: Integers
    """(n, k), each id once in a row, in no order; -1 where a token has fewer."""
    rollout: Floats
    """(n, k), log-probs of the sampler at the ids, nats; NaN where absent."""
    train: Floats
    """(n, k), those of the trainer's side of the gap."""
    sampled_ids: Integers
    """(n,), the sampled tokens; -1 where they are not on record."""
    sampled_rollout: Floats
    """(n,), log-probs of the sampler at the sampled tokens, nats."""
    sampled_train: Floats
    """(n,), those of the trainer's side."""
    mask: Booleans
    """(n,), True for each sampled token; False at tokens of tools."""
    loss_mask: Booleans
    """(n,), True for each token left in the loss; as `mask` where it is not on record."""
    advantages: Floats
    """(n,); NaN where not on record."""
    sequence: Integers
    """(n,), the number of the token's sequence in the step, ascending."""
    stands_for: Floats
    """(n,), 1 / the probability with which the sequence and its top-k were recorded."""

    def __len__(self) -> int:
        return len(self.sampled_ids)


def support_of(run: Run, step: int, gap: str = "mismatch") -> Support:
    """The support of a whole step, in the memory of all its tokens. Without tokens where the step has no top-k."""
    parts = list(support_pieces(run, step, gap)) or [_nothing()]
    most = max(part.ids.shape[1] for part in parts)
    return Support(
        *(np.concatenate([_widened(getattr(part, f.name), most) for part in parts]) for f in fields(Support))
    )


def support_pieces(run: Run, step: int, gap: str = "mismatch") -> Iterator[Support]:
    """The support of a step, some sequences at a time. gap: mismatch, total, or another one of rollout."""
    if sides(gap)[0] != POLICIES[0]:
        raise SchemaError(f"gap {gap} has no sampler's side; wanted mismatch or total")
    table = run.topk(step)
    if not len(table):
        return
    records = columns_of(run, step, ("token_ids", "mask", "loss_mask", "advantages", "inclusion_probability"), gap)
    found = gap_rows(records, gap)
    rows = _Alternatives.of(table, [f"{side}_topk_logprobs" for side in sides(gap)])
    tokens = _tokens(records, found)
    held = [
        [row for row in own if rows.fits(row, int(found.lengths[place]))]
        for place, own in enumerate(_rows_of_each(records, found, table))
    ]
    kept = [place for place, own in enumerate(held) if own]
    widths = [min(MOST_WIDE, sum(rows.widest(row) for row in held[place])) for place in kept]
    for chunk in _chunks(kept, found.lengths[kept].tolist(), widths):
        yield _piece(chunk, found, held, rows, tokens)


@dataclass(frozen=True)
class _Alternatives:
    """Rows of top-k as flat arrays."""

    lengths: Integers
    """Tokens of each row."""
    firsts: Integers
    """Place of each row's first token among all."""
    sizes: Integers
    """Alternatives of each row."""
    counts: Integers
    """Alternatives of each token."""
    ids: Integers
    """Ids of all alternatives."""
    of_sides: tuple[Array, Array]
    """Log-probs of all alternatives, of both sides."""
    positions: Sequence["Integers | None"]
    """The places of the tokens of each row in their response; None: 0, 1, 2, ..."""
    probability: Floats
    """The probability with which each row was recorded."""

    @classmethod
    def of(cls, table: pa.Table, names: Sequence[str]) -> "_Alternatives":
        sizes = alternatives(table)
        earlier, later = (_side(table, name, sizes) for name in names)
        lengths = list_lengths(table[COUNTS])
        return cls(
            lengths,
            np.cumsum(lengths) - lengths,
            sizes,
            pc.list_flatten(table[COUNTS]).to_numpy().astype(np.int64),
            pc.list_flatten(table[IDS]).to_numpy().astype(np.int64),
            (earlier, later),
            [None if row is None else np.array(row, np.int64) for row in table["positions"].to_pylist()],
            pc.fill_null(table["inclusion_probability"], 1.0).to_numpy(),
        )

    def fits(self, row: int, tokens: int) -> bool:
        """True if a row is of a sequence of so many tokens, or of a slice of one."""
        own = self.positions[row]
        return bool(self.lengths[row] == tokens) if own is None else not len(own) or bool(own.max() < tokens)

    def widest(self, row: int) -> int:
        """The most alternatives of a token of a row."""
        return int(self.counts[self.firsts[row] : self.firsts[row] + self.lengths[row]].max(initial=0))


def _side(table: pa.Table, name: str, sizes: Integers) -> Array:
    """The log-probs of a side; NaN for a reading, which has none."""
    if name not in table.column_names:
        return np.full(int(sizes.sum()), np.nan, np.float32)
    return flat_floats(table[name], sizes)


def _rows_of_each(records: pa.Table, found: GapRows, table: pa.Table) -> list[list[int]]:
    """For each row of the gap its rows of top-k: those of its own minibatch, and those of none."""
    keys = ["attempt", "step", "sequence_id"]
    own, theirs = records.select(keys), table.select(keys)
    key = row_keys(pa.concat_tables([own.cast(theirs.schema), theirs]))
    minibatch = [pc.fill_null(each["minibatch"].cast(pa.int64()), -1).to_numpy() for each in (records, table)]
    by_key: dict[int, list[int]] = {}
    for row, each in enumerate(key[len(records) :].tolist()):
        by_key.setdefault(each, []).append(row)
    return [
        [each for each in by_key.get(int(key[row]), ()) if minibatch[1][each] in (-1, minibatch[0][row])]
        for row in found.rows.tolist()
    ]


def _tokens(records: pa.Table, found: GapRows) -> Mapping[str, Array]:
    """The values of each token of the gap's rows beside its alternatives."""
    table, count = taken(records, found.rows), int(found.lengths.sum())
    ids = flat_values(table["token_ids"], found.lengths, -1) if len(table) else pa.array([], pa.int32())
    is_left = np.full(count, -1)
    if len(table) and table["loss_mask"].null_count < len(table):
        flat = flat_values(table["loss_mask"].cast(pa.list_(pa.int8())), found.lengths, -1)
        is_left = pc.fill_null(flat, -1).to_numpy(zero_copy_only=False)
    return {
        "sampled_ids": pc.fill_null(ids, -1).to_numpy(zero_copy_only=False).astype(np.int64),
        "sampled_rollout": found.earlier.astype(np.float64),
        "sampled_train": found.later.astype(np.float64),
        "mask": found.mask,
        "loss_mask": np.where(is_left < 0, found.mask, is_left > 0),
        "advantages": np.full(count, np.nan) if found.advantage is None else found.advantage.astype(np.float64),
    }


def _chunks(kept: Sequence[int], lengths: Sequence[int], widths: Sequence[int]) -> Iterator[list[int]]:
    """The sequences in portions of MOST_PLACES. lengths: their tokens. widths: the most alternatives of a token of each."""
    chunk, tokens, widest = list[int](), 0, 0
    for place, length, width in zip(kept, lengths, widths, strict=True):
        if chunk and (tokens + length) * max(widest, width) > MOST_PLACES:
            yield chunk
            chunk, tokens, widest = [], 0, 0
        chunk.append(place)
        tokens, widest = tokens + length, max(widest, width)
    if chunk:
        yield chunk


def _piece(
    chosen: list[int], found: GapRows, held: list[list[int]], rows: _Alternatives, tokens: Mapping[str, Array]
) -> Support:
    starts, entries = found.starts, np.cumsum(rows.sizes) - rows.sizes
    token, entry, probability = list[Array](), list[Array](), list[float]()
    base = 0
    for place in chosen:
        length = int(found.lengths[place])
        for row in held[place]:
            own = rows.positions[row]
            at = np.arange(length) if own is None else own
            counts = rows.counts[rows.firsts[row] : rows.firsts[row] + rows.lengths[row]]
            token.append(np.repeat(base + at, counts))
            entry.append(np.arange(entries[row], entries[row] + rows.sizes[row]))
        probability.append(min(float(rows.probability[row]) for row in held[place]))
        base += length
    where = np.concatenate([np.arange(starts[place], starts[place] + found.lengths[place]) for place in chosen])
    lengths = found.lengths[chosen]
    recorded = np.ones(len(chosen)) if found.stands_for is None else found.stands_for[chosen]
    stands_for = np.maximum(recorded, 1 / np.array(probability))
    at, which = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (token, entry))
    laid_out = _laid_out(at, rows.ids[which], [side[which] for side in rows.of_sides], base)
    own_tokens = {name: values[where] for name, values in tokens.items()}
    return Support(
        *laid_out, **own_tokens, sequence=np.repeat(chosen, lengths), stands_for=np.repeat(stands_for, lengths)
    )


def _laid_out(token: Integers, ids: Integers, of_sides: Sequence[Array], tokens: int) -> tuple[Array, Array, Array]:
    """(ids, log-probs of one side, of the other), each (tokens, k). An id that a token has twice is in one place."""
    counts = np.bincount(token, minlength=tokens)
    slot = np.empty(len(token), np.int64)
    is_even = 0 < int(counts.max(initial=0)) == int(counts.min(initial=0)) <= MOST_WIDE and bool(
        (np.diff(token) >= 0).all()
    )
    if is_even:  # as trainers log them, and five times as fast
        earlier, later = (side.astype(np.float64).reshape(tokens, -1) for side in of_sides)
        laid_out = ids.reshape(tokens, -1), earlier, later
    else:
        slot[np.argsort(token, kind="stable")] = places(counts)
        laid_out = _scattered(token, slot, ids, of_sides, tokens)
    ranked = np.sort(laid_out[0], axis=1)
    if not ((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] >= 0)).any():
        return laid_out
    order = np.lexsort((ids, token))
    is_new = np.diff(token[order], prepend=-1).astype(bool) | np.diff(ids[order], prepend=-1).astype(bool)
    distinct = token[order][is_new]
    slots = np.arange(len(distinct)) - np.searchsorted(distinct, distinct)
    slot[order] = slots[np.cumsum(is_new) - 1]
    return _scattered(token, slot, ids, of_sides, tokens)


def _scattered(
    token: Integers, slot: Integers, ids: Integers, of_sides: Sequence[Array], tokens: int
) -> tuple[Array, Array, Array]:
    inside = slot < MOST_WIDE
    token, slot, ids, of_sides = token[inside], slot[inside], ids[inside], [side[inside] for side in of_sides]
    shape = (tokens, int(slot.max(initial=-1)) + 1)
    laid_out = np.full(shape, -1, np.int64)
    laid_out[token, slot] = ids
    of_side = np.full((2, *shape), np.nan)
    for side, values in zip(of_side, of_sides, strict=True):
        known = np.flatnonzero(~np.isnan(values))[::-1]  # the newest file comes first, and is written last
        side[token[known], slot[known]] = values[known]
    return laid_out, of_side[0], of_side[1]


def _widened(values: Array, most: int) -> Array:
    """The values of a piece with as many alternatives as the widest piece has."""
    if values.ndim == 1 or values.shape[1] == most:
        return values
    fill = -1 if values.dtype.kind == "i" else np.nan
    return np.pad(values, ((0, 0), (0, most - values.shape[1])), constant_values=fill)


def _nothing() -> Support:
    pairs, numbers = np.empty((0, 0)), np.empty(0)
    whole, truth = np.empty(0, np.int64), np.empty(0, bool)
    return Support(pairs.astype(np.int64), pairs, pairs, whole, numbers, numbers, truth, truth, numbers, whole, numbers)
