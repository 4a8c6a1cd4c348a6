"""Marked tokens, by sequence: where in the sequences they stand, in which sequences, and at which steps, in words."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers

from .evidence import Evidence
from .non_finite import Marked

CHANCE = 1e-3
"""A place is told if all marked tokens would stand there by chance this seldom, with sequences as the independent units."""
MOST = 0.75
"""A place with more than this share of the tokens is no place."""
LABELS = {
    "replica": "only at replica {}", "rank": "only on rank {}", "minibatch": "only in minibatch {}",
    "finish": "only in sequences that ended by “{}”",
}  # fmt: skip
"""Label of a sequence -> the words for marked tokens that stand in sequences of one value alone."""


def marked(
    row: Integers,
    position: Integers,
    mark: Booleans,
    lengths: Integers,
    steps: Integers,
    labels: Mapping[str, tuple[str, ...]],
) -> Marked:
    """The marked tokens among some tokens. row: index into `lengths`, `steps` and labels, shape (tokens,)."""
    size = len(lengths)
    own, at = row[mark], position[mark]
    first, last = np.full(size, np.iinfo(np.int64).max), np.full(size, -1)
    np.minimum.at(first, own, at)
    np.maximum.at(last, own, at)
    count = np.bincount(own, minlength=size)
    tokens = np.bincount(row, minlength=size)
    return Marked(steps, lengths, tokens, count, np.where(count > 0, first, -1), last, labels)


def all_marked(parts: Sequence[Marked]) -> Marked:
    """The sequences of all parts. A label that a part lacks is not known of any."""
    names = set.intersection(*(set(part.labels) for part in parts)) if parts else set()
    arrays = ("steps", "lengths", "tokens", "count", "first", "last")
    none = np.zeros(0, np.int64)
    return Marked(
        **{name: np.concatenate([none, *(getattr(part, name) for part in parts)]) for name in arrays},
        labels={name: tuple(value for part in parts for value in part.labels[name]) for name in names},
    )


def marked_of(evidence: Evidence, mark: Booleans) -> Marked:
    """The marked tokens of some evidence, with the labels that it holds."""
    starts = evidence.starts
    ends = np.append(starts[1:], len(evidence)) - 1
    lengths = evidence.facts["length"][starts] if evidence.has("length") else evidence.position[ends] + 1
    steps = evidence.facts["step"][starts] if evidence.has("step") else np.zeros(len(starts), np.int64)
    labels = {name: _texts(evidence, name, starts) for name in LABELS if evidence.has(name)}
    return marked(evidence.row_codes, evidence.position, mark, lengths, steps, labels)


def _texts(evidence: Evidence, name: str, starts: Integers) -> tuple[str, ...]:
    names, values = evidence.names.get(name), evidence.facts[name][starts].tolist()
    return tuple((names[value] if value >= 0 else "") if names else str(value) for value in values)


def places(found: Marked) -> tuple[str, ...]:
    """The places of marked tokens that are no chance: in the sequence, then in which sequences."""
    return (*_in_sequence(found), *_in_sequences(found)) if found.hit.any() else ()


def same_span(found: Marked) -> str:
    """The place of the marked tokens in words, if it is one span that every sequence has, of several; else nothing."""
    rows, size = len(found.count), found.last - found.first + 1
    if not rows or not found.hit.all() or (found.count != size).any() or (found.count == found.tokens).any():
        return ""
    if not _is_no_chance(found, float(size.sum() / max(found.lengths.sum(), 1))):
        return ""
    own, before, after = (set(values.tolist()) for values in (size, found.first, found.lengths - found.last - 1))
    if len(own) > 1 or (len(before) > 1 and len(after) > 1):
        return ""
    (number,) = own
    if before == {0} or after == {0}:
        tokens = counted(number, "token") if number > 1 else "token"
        return f"the {'first' if before == {0} else 'last'} {tokens} of every sequence"
    if len(before) > 1:
        return ""
    (start,) = before
    return (
        f"{f'positions {start:,} to {start + number - 1:,}' if number > 1 else f'position {start:,}'} of every sequence"
    )


def _in_sequence(found: Marked) -> Iterator[str]:
    hit, lengths = found.hit, np.maximum(found.lengths, 1)
    first, last, all_tokens = int(found.first[hit].min()), int(found.last[hit].max()), float(lengths.sum())
    from_end = int((lengths - found.first)[hit].max())
    if (found.count == found.tokens)[hit].all():
        yield "at every token of their sequences"
        return
    before = float(np.minimum(lengths, last + 1).sum()) / all_tokens
    after = float(np.maximum(lengths - first, 0).sum()) / all_tokens
    at_end = float(np.minimum(lengths, from_end).sum()) / all_tokens
    early = _is_no_chance(found, before)
    if first == last and early | _is_no_chance(found, after):
        yield f"at position {first:,} alone"
    elif early:
        yield f"within the first {counted(last + 1, 'token')}"
    elif _is_no_chance(found, after):
        yield f"at positions from {first:,} on"
    if not early and _is_no_chance(found, at_end):
        is_tail = (found.last == lengths - 1)[hit] & (found.count == found.last - found.first + 1)[hit]
        yield f"within the last {counted(from_end, 'token')}" + (" and up to the end" if is_tail.all() else "")


def _in_sequences(found: Marked) -> Iterator[str]:
    lengths, hit = found.lengths, found.hit
    least, most = int(lengths[hit].min()), int(lengths[hit].max())
    long, short = lengths >= least, lengths <= most
    if _is_no_chance(found, float(long.mean())):
        yield f"only in sequences of {least:,} tokens and more ({int(hit.sum()):,} of {int(long.sum()):,} such)"
    elif _is_no_chance(found, float(short.mean())):
        yield f"only in sequences of {most:,} tokens and fewer ({int(hit.sum()):,} of {int(short.sum()):,} such)"
    for name, words in LABELS.items():
        values = np.array(found.labels.get(name, ()))
        distinct = set(values[hit].tolist()) if len(values) else set()
        if len(distinct) == 1 and "" not in distinct:
            (value,) = distinct
            if _is_no_chance(found, float(found.tokens[values == value].sum() / max(found.tokens.sum(), 1))):
                yield words.format(value)


def _is_no_chance(found: Marked, share: float) -> bool:
    """True if tokens of so many sequences would by chance seldom all lie in a place with this share of the tokens."""
    return bool(share < MOST and share ** int(found.hit.sum()) < CHANCE)


def level(tokens: Integers, sums: Floats, chosen: Booleans) -> tuple[float, float]:
    """(mean of the tokens of the chosen sequences, its standard error with sequences as the units); NaN without a token.

    tokens, sums: number of tokens of each sequence, and the sum over them. The error of fewer than two sequences is infinite.
    """
    tokens, sums, rows = tokens[chosen], sums[chosen], int(chosen.sum())
    if not tokens.sum():
        return np.nan, np.inf
    mean = float(sums.sum() / tokens.sum())
    variance = float(((sums - mean * tokens) ** 2).sum() / tokens.sum() ** 2)
    return mean, float(np.sqrt(variance * rows / (rows - 1))) if rows > 1 else np.inf


def since(steps: Integers, count: Integers) -> str:
    """The steps with marked tokens in words. steps: ascending; count: marked tokens of each step."""
    own = steps[count > 0]
    if not len(own) or len(steps) == 1:
        return ""
    first, last = int(own[0]), int(own[-1])
    if len(own) == 1:
        return f"at step {first} alone"
    between = int(((steps >= first) & (steps <= last)).sum())
    if len(own) < between:
        return f"at {len(own)} of {len(steps)} steps, {first} to {last}"
    is_open = last == steps[-1]
    if first == steps[0] and is_open:
        return "at every step"
    return f"since step {first}" if is_open else f"at steps {first} to {last}"


def since_read(evidence: Evidence, found: Marked) -> str:
    """The same of the sequences of some evidence; it says so if the run has steps that were not read."""
    steps, index = np.unique(found.steps, return_inverse=True)
    words = since(steps, np.bincount(index, found.count))
    is_part = evidence.history is not None and len(evidence.history.steps) > len(steps)
    return f"{words} of those read" if words and is_part else words


def counted(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def share_words(count: int, of: int) -> str:
    """So many of so many tokens, with the share.

    >>> share_words(12, 20_000), share_words(37, 100), share_words(1, 10_000_000)
    ('12 of 20,000 tokens (0.06%)', '37 of 100 tokens (37%)', '1 of 10,000,000 tokens')
    """
    share = count / max(of, 1)
    percent = f"{share:.1%}" if 0.99 <= share < 1 else f"{share:.0%}" if share >= 0.1 else f"{100 * share:.2g}%"
    return f"{count:,} of {counted(of, 'token')}" + (f" ({percent})" if share >= 1e-6 else "")
