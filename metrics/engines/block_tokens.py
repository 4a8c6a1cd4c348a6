"""The unmasked tokens of a block of whole sequences, with all that token formulas read."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ratioscope.arrays import Codes, Integers, Reals
from ratioscope.record import kin

from ..columns import SHIFTS, log_weights
from ..distribution import PLAIN
from ..metric import SAMPLED
from ..pieces import portions, repeated
from .arrow_columns import GapRows
from .loops import LogWeights
from .numpy_program import Columns
from .program import BOUND, Program, token_program
from .slices import SliceCodes


@dataclass(frozen=True)
class Block:
    """Some whole sequences of a GapRows."""

    first: int
    """The first row."""
    last: int
    """One after the last row."""
    start: int
    """The first token."""
    stop: int
    """One after the last token."""


def blocks(rows: GapRows, tokens: int) -> Iterator[Block]:
    """Blocks of about so many tokens, each of at least one whole sequence."""
    ends = np.cumsum(rows.lengths)
    first, start = 0, 0
    while first < len(ends):
        last = max(first + 1, int(np.searchsorted(ends, start + tokens, side="right")))
        stop = int(ends[last - 1])
        yield Block(first, last, start, stop)
        first, start = last, stop


@dataclass(frozen=True)
class Tokens:
    """The unmasked tokens of a block."""

    gap: str
    lengths: Integers
    """The number of tokens of each sequence."""
    codes: Mapping[str, Codes]
    """Name of a slice by token -> the code of each token."""
    columns: Columns
    """The columns that token formulas read; `earlier`, `later`, `entropy`, `advantage`, and the pairs."""
    largest: float
    """The largest size of a number in them, but for the pairs; NaN if there is one."""
    has_pairs: bool
    """False if the pairs are left out: the tokens of a sequence that has all of them lie beside their neighbours."""

    @property
    def sound(self) -> bool:
        """True if no number but those of the pairs is beyond BOUND, or NaN."""
        return self.largest <= BOUND

    @property
    def is_plain(self) -> bool:
        """True if no log-weight can be beyond PLAIN, or NaN."""
        return 2 * self.largest <= PLAIN

    @cached_property
    def begins(self) -> Integers:
        """The first token of each sequence that has one."""
        present = self.lengths[self.lengths > 0]
        return np.cumsum(present) - present

    @cached_property
    def sequence(self) -> Integers:
        """The sequence of each token, within the block. Most blocks do without."""
        return repeated(np.arange(len(self.lengths)), self.lengths)

    def part(self, first: int, last: int) -> "Tokens":
        """The tokens of some of the sequences: from the first one, to the one before the last."""
        start, stop = (int(self.lengths[:end].sum()) for end in (first, last))
        codes = {name: codes[start:stop] for name, codes in self.codes.items()}
        columns = {name: column[start:stop] for name, column in self.columns.items()}
        return replace(self, lengths=self.lengths[first:last], codes=codes, columns=columns)

    def sequence_at(self, places: Integers) -> Integers:
        """The sequence of each of these tokens."""
        return np.flatnonzero(self.lengths)[np.searchsorted(self.begins, places, side="right") - 1]

    def program(self, *, whole: bool) -> Program:
        """The program of the gap's token statistics. whole: of those that relate tokens to their neighbours."""
        recorded = {name: name in self.columns for name in ("entropy", "advantage")}
        return token_program(self.gap, whole=whole, sound=self.sound, **recorded)


def tokens_at_once(
    rows: GapRows, blocks: Sequence[Block], slices: Sequence[SliceCodes], most: int
) -> Iterator[tuple[Sequence[Block], Tokens]]:
    """Blocks and their tokens: up to so many blocks at once, if all are alike, so that the sums of each sequence are the same."""
    for few in portions(blocks, most):
        tokens = block_tokens(rows, Block(few[0].first, few[-1].last, few[0].start, few[-1].stop), slices)
        is_complete = {bool(rows.mask[block.start : block.stop].all()) for block in few}
        if len(few) == 1 or (tokens.sound and len(is_complete) == 1):
            yield few, tokens
        else:
            yield from (([block], block_tokens(rows, block, slices)) for block in few)


def token_weights(tokens: Tokens) -> tuple[Integers, LogWeights]:
    """The log-weights of the tokens that are not set aside, and how many each sequence has."""
    earlier, later = (tokens.columns[name] for name in ("earlier", "later"))
    if tokens.sound:
        return tokens.lengths, LogWeights(later, earlier)
    earlier, later = earlier.astype(np.float64), later.astype(np.float64)
    token, log_weight = log_weights(earlier, later, np.ones(len(earlier), np.bool_), np)
    return np.bincount(tokens.sequence[token], minlength=len(tokens.lengths)), LogWeights.of(log_weight[token])


def block_tokens(rows: GapRows, block: Block, slices: Sequence[SliceCodes]) -> Tokens:
    """The tokens of a block, with their codes in the slices by token."""
    here, lengths = slice(block.start, block.stop), rows.lengths[block.first : block.last]
    mask = rows.mask[here]
    columns = {"earlier": rows.earlier[here], "later": rows.later[here]}
    recorded = {"entropy": rows.entropy, "advantage": rows.advantage}
    columns |= {name: values[here] for name, values in recorded.items() if values is not None}
    complete = bool(mask.all())
    places = np.empty(0, np.int64) if complete else np.flatnonzero(mask)
    sampled = slice(None) if complete else places
    chosen = {name: values[sampled] for name, values in columns.items()}
    ends = [end for values in chosen.values() for end in (-values.min(initial=0.0), values.max(initial=0.0))]
    largest = float(np.max(ends))
    visible = columns["earlier"] if complete else np.where(mask, columns["earlier"], np.float32(np.nan))
    has_pairs = kin(rows.gap) in SAMPLED and not (complete and largest <= BOUND)
    shifts = SHIFTS if has_pairs else ()
    pairs = {f"pair {shift}": _shifted(visible, lengths, shift)[sampled] for shift in shifts}
    codes = {piece.name: piece.codes[here][sampled] for piece in slices if piece.by_token}
    own = lengths if complete else np.diff(np.searchsorted(places, np.cumsum(lengths)), prepend=0)
    return Tokens(rows.gap, own, codes, chosen | pairs, largest, has_pairs)


def changes(begins: Integers, codes: Sequence[Codes]) -> Integers:
    """The places at which a sequence begins or any of the codes changes. begins: where sequences do. codes: at least one."""
    differs = np.zeros(len(codes[0]), np.bool_)
    differs[begins] = True
    for code in codes:
        differs[1:] |= code[1:] != code[:-1]
    return np.flatnonzero(differs)


def _shifted(values: Reals, lengths: Integers, shift: int) -> Reals:
    """values[t - shift] at t if both are in one sequence, else NaN."""
    result, size = np.full_like(values, np.nan), abs(shift)
    to, origin = (slice(size, None), slice(None, -size)) if shift > 0 else (slice(None, -size), slice(size, None))
    result[to] = values[origin]
    ends = np.cumsum(lengths)
    for back in range(size):  # the tokens at the edge of a sequence, whose neighbour lies in another one
        edge = (ends - lengths + back) if shift > 0 else (ends - 1 - back)
        result[edge[lengths > back]] = np.nan
    return result
