"""Places with which the sentinels of a run go beyond chance: parts of the response, lengths, steps and labels of sequences.

Sequences are the independent units. Each place that is looked at counts (Bonferroni).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Booleans, Integers

from .marked import CHANCE, MOST, counted
from .non_finite import Marked

LABELS = {
    "finish reason": "in responses that ended by “{}”", "replica": "at replica {}", "rank": "on rank {}",
    "minibatch": "in minibatch {}", "packed row": "in packed row {}",
}  # fmt: skip
"""Label of a sequence -> its place in words."""
PARTS = (1.0, 0.9, 0.5)
"""Parts of the sequences with a sentinel that a place is drawn around; the largest one that is no chance counts."""
MOST_SHOWN = 60
"""Characters of a label that are shown."""
LEAST_P = 1e-300
"""A smaller probability is this."""
TEST = "exact hypergeometric test over sequences, one-sided, times the number of places looked at (Bonferroni)"


@dataclass(frozen=True)
class Place:
    """A place with which sentinels go, or that was looked at."""

    fact: str
    """position, length, step, or a label of LABELS."""
    words: str
    hit: int
    """Sequences with a sentinel that are there; of a position, those with all of their sentinels there."""
    of: int
    """Sequences that are there."""
    beyond: int
    """Sequences with a sentinel that are elsewhere."""
    others: int
    """Sequences that are elsewhere."""
    p: float
    """Probability that chance does as much at one of the places looked at, 0 to 1."""
    part: float = 1.0
    """One of PARTS."""


@dataclass(frozen=True)
class Places:
    """The places with which sentinels go."""

    found: tuple[Place, ...]
    """At most one of each fact."""
    looked: int
    """Number of places that were looked at."""
    facts: tuple[str, ...]
    """The facts that they are of."""
    last: int
    """Nearly all sentinels are within so many last tokens of their response; 0 if that may be chance."""


@dataclass(frozen=True)
class _Units:
    """The sequences that can be compared, and the event that is counted. Every array has shape (sequences,)."""

    kept: Booleans
    """True for each sequence that can be compared."""
    hit: Booleans
    """True for each sequence with the event, such as a sentinel among its last tokens."""
    exposure: Integers
    """Tokens of each at which the event can happen."""


def places_of(found: Marked) -> Places:
    """The places of the marked tokens that are no chance. Positions and lengths of `found` count sampled tokens."""
    inside = dict(_positions(found))
    last = next((inside[place] for place in _clear([place for place, end in inside.items() if end], ("position",))), 0)
    units = _units(found, last)
    places = [*inside] + [
        replace(_place(fact, words, there, found, units), part=part)
        for fact, words, there, part in (*_lengths(found), *_steps(found), *_labels(found))
    ]
    own = [replace(place, p=max(min(1.0, place.p * len(places)), LEAST_P)) for place in places]
    facts = tuple(dict.fromkeys(place.fact for place in own))
    return Places(tuple(_clear(own, facts)), len(own), facts, last)


def _clear(places: Sequence[Place], facts: Iterable[str]) -> Iterator[Place]:
    """The place of each fact that is no chance: around the most sequences, among those of which chance is about as seldom."""
    for fact in facts:
        own = [place for place in places if place.fact == fact and place.p < CHANCE]
        alike = [place for place in own if place.p <= math.sqrt(min(each.p for each in own))]
        yield from sorted(alike, key=lambda place: (-place.part, place.p))[:1]


def _positions(found: Marked) -> Iterator[tuple[Place, int]]:
    """(place within the responses with a marked token, the number of last tokens that it is; 0 if it is no end)."""
    hit = found.hit & (found.count < found.tokens)
    lengths, first, last = (values[hit] for values in (found.lengths, found.first, found.last))
    for part in PARTS if hit.any() else ():
        until, since, size = _around(last + 1, part), -_around(-first, part), _around(lengths - first, part)
        for words, there, tokens, ending in (
            (_span("first", until), last < until, np.minimum(until, lengths), 0),
            (f"at positions from {since:,} on", first >= since, np.maximum(lengths - since, 0), 0),
            (_span("last", size), lengths - first <= size, np.minimum(size, lengths), size),
        ):
            share, here = float((tokens / lengths).mean()), int(there.sum())
            # Events with equal probabilities vary most (Hoeffding 1956): as if they were drawn from so many tokens.
            p = hypergeometric_tail(10**8, round(share * 10**8), len(there), here) if share < MOST else 1.0
            yield Place("position", words, here, len(there), len(there) - here, 0, p, part), ending


def _around(values: Integers, part: float) -> int:
    """The least bound that so large a part of the values keeps."""
    return int(np.sort(values)[math.ceil(part * len(values)) - 1])


def _span(end: str, size: int) -> str:
    return f"at the {end} token" if size == 1 else f"within the {end} {counted(size, 'token')}"


def _units(found: Marked, last: int) -> _Units:
    """The event whose chance is as equal over the sequences as it can be: a long one has more tokens to be hit."""
    hit, tokens = found.hit, found.tokens
    every, one = np.ones(len(hit), np.bool_), np.ones(len(hit), np.int64)
    if (found.count == tokens)[hit].all():
        return _Units(every, hit, one)
    if last:
        return _Units(every, hit & (found.lengths - found.first <= last), np.minimum(tokens, last))
    if hit.mean() <= 0.5:
        return _Units(every, hit, tokens)
    size = int(np.median(found.first[hit])) + 1  # most have one: only first tokens that all sequences have are compared
    return _Units(found.lengths >= size, hit & (found.first < size), one)


Candidate = tuple[str, str, Booleans, float]
"""(fact, words, the sequences that are there, part)"""


def _lengths(found: Marked) -> Iterator[Candidate]:
    lengths = found.lengths
    for part in PARTS:
        least, most = -_around(-lengths[found.hit], part), _around(lengths[found.hit], part)
        yield "length", f"in responses of {least:,} tokens and more", lengths >= least, part
        yield "length", f"in responses of {most:,} tokens and fewer", lengths <= most, part


def _steps(found: Marked) -> Iterator[Candidate]:
    distinct = np.unique(found.steps).tolist()
    for step in distinct[1:]:
        yield "step", f"since step {step}", found.steps >= step, 1.0
    for step in distinct if len(distinct) > 1 else ():
        yield "step", f"at step {step} alone", found.steps == step, 1.0


def _labels(found: Marked) -> Iterator[Candidate]:
    for name, texts in found.labels.items():
        distinct, codes = np.unique(np.array(texts), return_inverse=True)
        for code, value in enumerate(distinct.tolist()) if len(distinct) > 1 else ():
            yield name, LABELS[name].format(value[:MOST_SHOWN] or "unknown"), codes == code, 1.0


def _place(fact: str, words: str, there: Booleans, found: Marked, units: _Units) -> Place:
    """The place with its p. Between equal chances for each sequence and for each token, the larger p counts."""
    of, hit = int(there.sum()), int((found.hit & there).sum())
    event, inside = units.hit[units.kept], there[units.kept]
    drawn, both = int(event.sum()), int((event & inside).sum())
    p = hypergeometric_tail(len(inside), int(inside.sum()), drawn, both)
    exposure = units.exposure[units.kept]
    if len(exposure) and np.ptp(exposure) > 0:
        p = max(p, hypergeometric_tail(int(exposure.sum()), int(exposure[inside].sum()), drawn, both))
    return Place(fact, words, hit, of, int(found.hit.sum()) - hit, len(there) - of, p)


def hypergeometric_tail(total: int, inside: int, drawn: int, both: int) -> float:
    """P(at least `both` of the drawn lie inside), for draws without replacement from `total`. Fisher 1935, one-sided.

    >>> round(hypergeometric_tail(20, 12, 12, 12) * math.comb(20, 12), 6)
    1.0
    """
    if both * total <= inside * drawn:
        return 1.0
    log = _log_choose(inside, both) + _log_choose(total - inside, drawn - both) - _log_choose(total, drawn)
    term, whole = math.exp(log), 0.0
    for k in range(both, min(inside, drawn) + 1):
        whole += term
        if term <= 1e-17 * whole:
            break
        term *= (inside - k) * (drawn - k) / ((k + 1) * (total - inside - drawn + k + 1))
    return min(whole, 1.0)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1) if 0 <= k <= n else -math.inf
