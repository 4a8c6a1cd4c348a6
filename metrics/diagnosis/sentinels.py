"""Sentinels, numbers in place of log-probs from NaN to -9999: their places, what the loss did with them, what else is suspect."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ratioscope.arrays import Booleans, Floats, Integers
from ratioscope.record import MASK_REASONS

from .causes.no_log_probs import is_suspect
from .causes.records import APART, NEVER
from .evidence import distances
from .marked import all_marked, counted, level, marked
from .non_finite import Marked
from .non_finite_tokens import Tokens, kinds_of, side_of
from .sentinel_places import LABELS, TEST, Place, Places, places_of

HUGE = 900.0
"""A number that the other side denies by NEVER nats is a sentinel if it is so far from 0, or is one of SMALL."""
SMALL = (-100.0,)
NEARLY = 0.9
"""A part of the sequences that counts as all of them. A convention."""


@dataclass(frozen=True)
class Seen:
    """The sentinels of some steps that were read. Arrays have shape (sequences,)."""

    kinds: Mapping[str, int]
    """The value with its side -> tokens."""
    found: Marked
    """Their sequences. Positions and lengths count sampled tokens."""
    others: Integers
    """Other tokens of each sequence, but for honest values equal to a filler, such as 0."""
    distance: Floats
    """Sum of the clipped K3 over these."""
    excess: Integers
    """Log-probs that the earlier side has more than the later one."""
    masked: tuple[int, int] = (0, 0)
    """(sentinels with a loss mask on record, those of them that it leaves in the loss)."""
    reasons: Mapping[int, int] = field(default_factory=dict)
    """Reason of `mask_reason` -> sentinels that the loss left out for it."""


def seen(tokens: Tokens, fillers: Sequence[tuple[str, float]], excess: Integers, loss: Sequence[Integers]) -> Seen:
    """The sentinels among these tokens.

    fillers: (sampler or trainer, constant). loss: the loss mask and its reason at each token, -1 where it is not known.
    excess: as in `Seen`.
    """
    kinds, mark, alike = _marks(tokens, fillers)
    if (odd := (excess != 0)[tokens.row]).any():
        kinds, mark = Counter({"lists of unequal length": int(odd.sum())}), mark | odd
    size = np.bincount(tokens.row, minlength=len(tokens.lengths))
    found = marked(tokens.row, tokens.position, mark, size, tokens.steps, tokens.labels)
    rest = ~(mark | alike)
    sums = np.bincount(tokens.row[rest], distances(tokens.later[rest] - tokens.earlier[rest]), len(size))
    in_loss, reason = (values[mark] for values in loss)
    return Seen(
        kinds, found, np.bincount(tokens.row[rest], minlength=len(size)), sums.astype(np.float64), excess,
        (int((in_loss >= 0).sum()), int((in_loss > 0).sum())), Counter(reason[(in_loss == 0) & (reason > 0)].tolist()),
    )  # fmt: skip


def _marks(tokens: Tokens, fillers: Sequence[tuple[str, float]]) -> tuple[Counter[str], Booleans, Booleans]:
    """(the value with its side -> tokens, True for each sentinel, True for each value that is equal to one)."""
    kinds = Counter(kinds_of(tokens))
    finite = np.isfinite(tokens.earlier) & np.isfinite(tokens.later)
    mark, alike = ~finite, np.zeros(len(finite), np.bool_)
    pairs = (("sampler", tokens.earlier, tokens.later), ("trainer", tokens.later, tokens.earlier))
    for policy, (side, own, other) in zip(tokens.policies, pairs, strict=True):
        apart = np.abs(np.where(finite, own - other, 0.0))
        far = finite & (apart > NEVER) & ((np.abs(own) >= HUGE) | np.isin(own, SMALL))
        for value in {*np.unique(own[far])[:9].tolist(), *(value for named, value in fillers if named == side)}:
            alike |= own == value
            same = finite & (own == value) & ((value != 0) | (apart > APART))
            kinds[f"{value + 0.0:g} on {side_of(policy, tokens.policies)}"] += int(same.sum())
            mark |= same
        mark |= far
    return +kinds, mark, alike


def together(parts: Sequence[Seen]) -> Seen:
    """Those of several steps."""
    kinds, reasons = Counter[str](), Counter[int]()
    for part in parts:
        kinds.update(part.kinds)
        reasons.update(part.reasons)
    masked = (sum(part.masked[0] for part in parts), sum(part.masked[1] for part in parts))
    names = ("others", "distance", "excess")
    others, distance, excess = (np.concatenate([getattr(part, name) for part in parts]) for name in names)
    return Seen(kinds, all_marked([part.found for part in parts]), others, distance, excess, masked, reasons)


@dataclass(frozen=True)
class Sentinels:
    """The facts on the sentinels of a run, in sentences."""

    seen: Seen
    steps: tuple[int, ...]
    """Steps that were read, ascending."""
    of: int
    """Steps of the run that were asked about."""
    since: str
    """The steps with a sentinel in words."""

    @cached_property
    def places(self) -> Places:
        return places_of(self.seen.found)

    @property
    def words(self) -> str:
        """The sentinels and their places, in two sentences."""
        found, own = self.seen.found, self.seen.kinds
        kinds = sorted(own, key=lambda kind: -own[kind])
        more = f" and {len(kinds) - 3} other values" if len(kinds) > 3 else ""
        # A certain token has log-prob 0 honestly, so that only those count which the other side contradicts.
        least = "at least " if any(kind.startswith("0 ") for kind in kinds) else ""
        tokens = f"{least}{counted(int(found.count.sum()), 'token')}"
        stand = f"In place of log-probs stand {', '.join(kinds[:3])}{more}: {tokens}"
        read = "" if len(self.steps) == self.of else f" of the {counted(len(self.steps), 'step')} read"
        since = f", {self.since}" if self.since else ""
        return f"{stand} in {found.sequences}{read}{since}. {self._where}"

    @property
    def _where(self) -> str:
        """The places with which they go beyond chance, or that none was found, in one sentence."""
        own = self.places
        looked = f"{own.looked} places looked at"
        p = max((place.p for place in own.found), default=1.0)
        beyond = f"beyond chance (p {p:.0e} at most, exact tests over sequences, {looked})"
        if ends := self._one_too_many(own):
            return f"{ends}, {beyond}."
        if own.found:
            there = "; ".join(f"{place.words} ({_counts(place)})" for place in own.found)
            return f"They go with a place {beyond}: {there}."
        absent = ", ".join(name for name in LABELS if not any(self.seen.found.labels.get(name, ())))
        unknown = f"; not on record: {absent}" if absent else ""
        return f"They have no pattern in {_listed(own.facts)} ({looked}{unknown})."

    def _one_too_many(self, own: Places) -> str:
        """A list that is one log-prob too long or too short in all responses of a kind, in words; empty if that is not so."""
        kind = next((place for place in own.found if place.fact == "finish reason"), None)
        excess = self.seen.excess[self.seen.found.hit]
        by_length = int(np.median(excess)) if (excess == np.median(excess)).mean() >= NEARLY else 0
        if kind is None or min(kind.hit / kind.of, kind.hit / (kind.hit + kind.beyond)) < NEARLY:
            return ""
        if own.last != 1 and abs(by_length) != 1:
            return ""
        is_later = max(self.seen.kinds, key=lambda name: self.seen.kinds[name]).endswith("trainer's side")
        which = "too many" if by_length > 0 or (not by_length and is_later) else "too few"
        every = "every response" if kind.hit == kind.of else "nearly every response"
        where = f"{every} {kind.words.removeprefix('in responses ')} ({_counts(kind)})"
        return f"The sampler has one log-prob {which} in {where}{'' if by_length else ', at its last token'}"

    @property
    def effect(self) -> str:
        """The part that the loss left out, and if other tokens of the same forwards are suspect, in sentences."""
        known, inside = self.seen.masked
        names = (
            (MASK_REASONS[reason], count) for reason, count in self.seen.reasons.items() if reason < len(MASK_REASONS)
        )
        reasons = ", ".join(f"{count:,} as {name}" for name, count in names)
        out = f", and takes out {reasons}" if reasons else ""
        loss = f"The loss mask leaves {inside:,} of {known:,} in the loss{out}."
        return f"{loss if known else 'Nothing on record shows if the loss reads them: log loss_mask.'} {self._beside}"

    @property
    def _beside(self) -> str:
        """The gap of other tokens at the steps with a sentinel: of its sequences, and of the same step and replica."""
        found, hit = self.seen.found, self.seen.found.hit
        beside = np.isin(found.steps, found.steps[hit]) & ~hit
        words = self._apart("The other tokens of these sequences", hit, beside, "sequences without one at these steps")
        replicas = np.array(found.labels.get("replica", ("",) * len(hit)))
        forward = np.char.add(found.steps.astype(str), replicas)
        mates = beside & np.isin(forward, forward[hit])
        if len(set(replicas.tolist())) == 1 or not mates.any() or not (beside & ~mates).any():
            return words
        same = "Sequences without one, of the same replica and step,"
        return f"{words} {self._apart(same, mates, beside & ~mates, 'those of other replicas')}"

    def _apart(self, whose: str, chosen: Booleans, others: Booleans, named: str) -> str:
        """The gap of some tokens beside that of others, and if the first are suspect, in one sentence."""
        own, rest = (level(self.seen.others, self.seen.distance, part) for part in (chosen, others))
        if np.isnan(own[0]):
            return "These sequences have no other token."
        sizes = [f"{mean:.3g}" + (f" ± {error:.2g}" if np.isfinite(error) else "") for mean, error in (own, rest)]
        if np.isnan(rest[0]):
            return f"{whose} have K3 {sizes[0]} nats/token, and there are no {named} to compare."
        verdict = "they are suspect, too" if is_suspect(own, rest) else "nothing on record makes them suspect"
        return f"{whose} have K3 {sizes[0]} nats/token, {named} {sizes[1]}: {verdict}."


def _listed(facts: Sequence[str]) -> str:
    *others, last = facts
    return f"{', '.join(others)} or {last}" if others else last


def _counts(place: Place) -> str:
    rest = f"; {place.beyond:,} of the other {place.others:,}" if place.others else " sequences"
    return f"{place.hit:,} of {place.of:,}{rest}"


def plain_sentinels(own: Sentinels) -> dict[str, Any]:
    """The facts as values that JSON can hold."""
    found, (known, inside) = own.seen.found, own.seen.masked
    return {
        "words": own.words,
        "effect": own.effect,
        "kinds": dict(own.seen.kinds),
        "tokens": int(found.count.sum()),
        "sequences": int(found.hit.sum()),
        "of_sequences": len(found.hit),
        "steps_read": list(own.steps),
        "of_steps": own.of,
        "since": own.since,
        "test": TEST,
        "places": [asdict(place) for place in own.places.found],
        "places_looked_at": own.places.looked,
        "facts_looked_at": list(own.places.facts),
        "loss_mask": {"known": known, "in_loss": inside},
    }
