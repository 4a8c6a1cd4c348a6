"""Undoes one cause after another, the one that explains most first, until nothing clear is left."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from ..grading.finding import Confidence
from .catalogue import CAUSE, CAUSES
from .cause import Cause, Result, UndoKind, absent
from .causes.courses import course_words
from .causes.numerics import is_noise, noise
from .confidence import CERTAIN, OF_FEW_TOKENS, confidence, doubts
from .constancy import moved
from .diagnosis import CannotTell, Diagnosis, Excluded, Likely, Rival
from .evidence import FACTS, Evidence
from .on_record import DELIVERY, OnRecord
from .share import Share, over_steps
from .subset_faults import FEW_TOKENS

LEAST_SHARE = 0.15
"""A cause that explains less of the gap that is left is not named. A convention."""
LEAST_OF_WHOLE = 0.02
"""A cause that explains less of the whole gap is not named."""
ROUNDS = 5
"""At most so many causes are undone one after the other."""
LEAST_WITHIN = 0.3
"""Share of the gap of the bad tokens that their mechanism must explain."""
OVER_STEPS = ("never_synced", "missed_syncs")
"""Causes that need the history of the run, and so cannot be the mechanism of some of its tokens."""
OF_WEIGHTS = ("different_weights", "stale_weights", "lasting_change", "passing_change")
"""Signatures of other weights that say less than a proof of which weights a side has."""
OF_IDS, OF_MASS = ("biased_ids", "token_rows"), ("truncation", "banned_tokens", "grammar")
"""Causes that are undone by leaving tokens of some ids out, and those that a mean weight below 1 shows."""
ROUNDING = 2e-4
"""K3 in nats/token that rounding in 16 bits usually has at least: less at a place, a step or few tokens is no fault."""
FAR = 10.0
"""A gap that was so many times smaller before a course is not of rounding, which has a size at every step. A convention."""
EXACT = 1e-9
"""Mean K3 in nats/token of two sides that both compute in float32; less has no cause."""
MOST_RIVALS = 2
"""A set of more than three causes names none. Those that look the same come first, then the courses that fit best."""
LOOSE = 0.5
"""If a cause without a clear signature may still explain more than this share, it is not excluded."""
BONUS: Mapping[UndoKind, float] = {
    "changed numbers": 0.1, "recorded label": 0.25, "place": 0.0, "cluster": -0.2, "tail": -0.4, "rest": -1.0,
    "nothing": 0.0,
}  # fmt: skip
"""Between causes that explain nearly as much, the more specific one is named first: it had less freedom to fit."""
COPY = "both sides are equal to the last bit, so that nothing was measured which could show it"
"""Why no cause can be told of a gap whose sides may be one computation, told twice."""
MOST_OPEN = 0.2
"""A larger part of the gap that is left and is no rounding is a doubt about each cause that was undone."""
SURENESS: Mapping[Confidence, float] = {"high": 1.0, "medium": 0.7, "low": 0.4}
"""Weight of a share by its confidence, in the order of the causes. A convention."""
BLAME = 0.2
"""Between causes that explain nearly as much, the one that blames fewer tokens is named first."""


def diagnose(evidence: Evidence, causes: Sequence[Cause] = CAUSES) -> Diagnosis:
    """The diagnosis of a gap from its tokens. causes: the hypotheses that are tested."""
    no_ratio, judged = _without_log_probs(evidence, causes)
    first = _results([cause for cause in causes if cause.code not in no_ratio], judged) | no_ratio
    undone, left = _undone(judged, causes, first)
    undone = _by_evidence(undone, left)
    named = {item.cause.code for item in undone}
    shown = judged.record.shown.keys() - named
    silent = [c for c in causes if c.code in shown or first[c.code].holds and first[c.code].share is None]
    brought = {cause.code for cause in silent if named & set(cause.follows_from)}
    leads = (no_ratio.keys() | shown) - brought
    before, after = ([cause for cause in silent if (cause.code in leads) == leading] for leading in (True, False))
    ends = [[_silent(cause, first[cause.code], judged.record) for cause in side] for side in (before, after)]
    likely = (*ends[0], *undone, *ends[1], *_consequences(causes, first, undone))
    others = [cause for cause in causes if cause.code not in {item.cause.code for item in likely}]
    is_equal = bool(len(judged)) and not judged.log_ratio.any()
    is_copy = is_equal and not evidence.computed_apart
    open_causes = {
        cause.code: why
        for cause in others
        if (why := (COPY, ()) if is_copy and cause.code not in no_ratio else _why_not(cause, first[cause.code], judged))
    }
    shape = noise(left) if len(left) >= FEW_TOKENS else None
    rest = left.mean(left.distance)
    over_time = course_words(left) if rest > EXACT else ()
    return Diagnosis(
        likely,
        tuple(_excluded(cause, first[cause.code], likely) for cause in others if cause.code not in open_causes),
        tuple(CannotTell(cause, *open_causes[cause.code]) for cause in others if cause.code in open_causes),
        evidence.mean(evidence.distance),
        rest,
        shape,
        shape is not None and is_noise(rest, shape) and not over_time,
        len(evidence),
        evidence.rows,
        is_equal=is_equal,
        computed_apart=evidence.computed_apart,
        course=over_time,
    )


def _without_log_probs(evidence: Evidence, causes: Sequence[Cause]) -> tuple[dict[str, Result], Evidence]:
    """(results of the causes that take log-ratios away, the evidence in which every other cause is judged)."""
    results = {cause.code: cause.test(evidence) for cause in causes if cause.kind == "nothing"}
    judged = evidence
    for result in results.values():
        if result.holds and result.undone is not evidence:
            judged = evidence.kept(np.zeros(len(evidence), np.bool_)) if result.undone is None else result.undone
    return results, judged


class Part(NamedTuple):
    """A part of the whole gap, 0 to 1."""

    size: float
    error: float
    """Its standard error."""

    def times(self, share: Share) -> "Part":
        """The part of this part that an undoing explains."""
        own = max(share.share, 0.0)
        return Part(self.size * own, float(np.hypot(self.size * share.error, own * self.error)))


WHOLE = Part(1.0, 0.0)


def _undone(evidence: Evidence, causes: Sequence[Cause], first: Mapping[str, Result]) -> tuple[list[Likely], Evidence]:
    """(the causes that were undone one after another, the evidence that is left)."""
    likely: list[Likely] = []
    left, results, remaining = evidence, first, WHOLE
    for _ in range(ROUNDS):
        named = {item.cause.code for item in likely}
        # An undoing changes numbers: a fault of the numbers as recorded cannot be looked for behind it.
        is_recorded = all(item.cause.comes_first for item in likely)
        free = [
            cause for cause in causes if cause.code not in named and _may_be_named(cause, left, results[cause.code])
        ]
        free = [cause for cause in free if is_recorded or not cause.comes_first]
        if named & {*OF_IDS}:  # without tokens of some ids the mean weight is no longer 1 in an honest run
            free = [cause for cause in free if cause.code not in OF_MASS or first[cause.code].holds]
        chosen = _best([cause for cause in free if _source(cause, results) is None], results)
        if chosen is None or remaining.size < LEAST_OF_WHOLE and chosen.code not in CERTAIN:
            break
        item = _likely(chosen, results, left, remaining, causes)
        likely += _with_mechanism(item, results[chosen.code], left, causes)
        remaining = Part(remaining.size - item.of_whole, item.error)
        undone = results[chosen.code].undone
        left = left.kept(np.zeros(len(left), np.bool_)) if undone is None else undone
        if len(left) < FEW_TOKENS:
            return likely, left
        results = _results(causes, left)
    rest = _best([cause for cause in causes if cause.kind == "rest"], results)
    likely = [_with_weights(item, first, causes) for item in likely]
    if any(item.cause.partial for item in likely):
        return likely, left  # its own undoing leaves a rest that is the same fault
    if rest is not None and len(left) >= FEW_TOKENS and remaining.size > LEAST_SHARE:
        likely.append(_likely(rest, results, left, remaining, ()))
        left = results[rest.code].undone or left
    return likely, left


def _by_evidence(undone: Sequence[Likely], left: Evidence) -> list[Likely]:
    """The causes, the one with most evidence first: it explains most, at the confidence that it has.

    If most of the gap is left and is no rounding, no cause is sure: its undoing does not reach what it should.
    """
    share = sum(item.of_whole for item in undone)
    is_open = len(left) >= FEW_TOKENS and not is_noise(left.mean(left.distance), noise(left))
    unsure = [item for item in undone if item.cause.code not in CERTAIN and not item.fact]
    reasons: dict[str, str] = {}
    if is_open and 1 - share > MOST_OPEN:
        reasons = {item.cause.code: f"no known cause explains {1 - share:.0%} of the gap" for item in unsure}
    elif any(item.cause.kind == "rest" and item.of_whole > MOST_OPEN for item in undone):
        reasons = {
            item.cause.code: "all other tokens are apart, too"
            for item in unsure
            if item.cause.kind in ("cluster", "place")
        }
    doubted = [_doubted(item, reasons[item.cause.code]) if item.cause.code in reasons else item for item in undone]

    def place(item: Likely) -> tuple[bool, float]:
        leads = bool(item.fact) or item.cause.comes_first and item.of_whole > LEAST_SHARE
        return not leads, 0.0 if leads else -item.of_whole * SURENESS[item.confidence]

    ordered = sorted(doubted, key=place)
    return [*(_with_those_like_it(first, ordered) for first in ordered[:1]), *ordered[1:]]


def _with_those_like_it(first: Likely, others: Sequence[Likely]) -> Likely:
    """The first cause. If the record does not tell another one from it, it does not tell it from that one either."""
    known = {first.cause.code, *(rival.cause.code for rival in first.rivals)}
    beside = tuple(
        _rival(other.cause, first.cause, other.of_whole)
        for other in others
        if first.cause.code in other.instead and other.cause.code not in known
    )
    return first if first.fact else replace(first, rivals=(*first.rivals, *beside)[:MOST_RIVALS])


def _doubted(item: Likely, doubt: str) -> Likely:
    found = (*item.doubts, doubt)
    return replace(item, doubts=found, confidence=confidence(item.cause, found))


def _may_be_named(cause: Cause, left: Evidence, result: Result) -> bool:
    """True if a cause may be undone before the rest. A gap of float32 rounding alone has no cause but a fault of the record.

    Rounding in 16 bits has a size at every step: a lasting course from far below it is none.
    """
    share, is_lasting = result.share, cause.course in ("grows", "jumps")
    from_below = is_lasting and share is not None and share.before > FAR * share.after
    by_pattern = cause.kind in ("place", "cluster", "tail") or is_lasting or cause.course == "resets"
    least = ROUNDING if by_pattern and not from_below and cause.code not in left.record.shown else EXACT
    return cause.kind != "rest" and (cause.code in CERTAIN or left.mean(left.distance) > least)


def _with_mechanism(item: Likely, result: Result, left: Evidence, causes: Sequence[Cause]) -> list[Likely]:
    """The item, after the mechanism of its bad tokens if the item only tells which tokens are bad."""
    if not item.cause.localises or result.bad is None or result.on_record or item.fact:
        return [item]
    bad = left.kept(result.bad)
    mechanisms = [
        cause
        for cause in causes
        if cause.kind in ("changed numbers", "place") and not cause.localises and cause.code not in OVER_STEPS
    ]
    results = _results(mechanisms, bad)
    best = _best(mechanisms, results)
    share = None if best is None else results[best.code].share
    if best is None or share is None or share.share < LEAST_WITHIN:
        return [item]
    inside = _likely(best, results, bad, Part(item.of_whole, item.error), mechanisms)
    if best.kind == "place" and item.cause.kind == "cluster":
        inside = _doubted(inside, "its sequences were found by their gap alone")
    if item.cause.course in ("grows", "jumps") and best.course == "constant" and best.alike:
        inside = _as_later(inside)
    rest = replace(item, of_whole=item.of_whole - inside.of_whole)
    return [replace(inside, where=item.place), *([rest] if rest.of_whole > LEAST_SHARE else [])]


def _with_weights(item: Likely, first: Mapping[str, Result], causes: Sequence[Cause]) -> Likely:
    """The item. If few ids explain the lesser part, other weights may: they move ids, too. Without the tokens of these ids
    nothing can be told of them, because the mean weight is no longer 1."""
    rest = next((cause for cause in causes if cause.kind == "rest" and first[cause.code].holds), None)
    if rest is None or item.cause.code not in OF_IDS or item.of_whole >= LOOSE:
        return item
    return replace(item, rivals=(*item.rivals, Rival(rest, None, rest.confirm))[:MOST_RIVALS])


def _as_later(item: Likely) -> Likely:
    """The item of a setting that begins after the first step: what looks like it and comes with updates stands before it."""
    own, (code, *others) = item.cause, item.cause.alike
    lead = CAUSE[code]
    rivals = tuple(_rival(other, lead) for other in (*map(CAUSE.__getitem__, others), own))
    return _doubted(
        replace(item, cause=lead, rivals=rivals[:MOST_RIVALS]), f"it may be a setting that changed: {own.title}"
    )


def _results(causes: Sequence[Cause], evidence: Evidence) -> dict[str, Result]:
    """Code -> the result of its test. A cause that the record shows has the signature of any fault of weights that is there."""
    results = {cause.code: _result(cause, evidence) for cause in causes}
    for code in [code for code in results if code in evidence.record.shown and code in DELIVERY]:
        kin = {other: results[other] for other in (code, *DELIVERY, *OF_WEIGHTS) if other in results}
        held = [result for result in kin.values() if result.holds and result.share is not None]
        if held and not results[code].holds:
            results[code] = max(held, key=lambda result: result.share.share if result.share else 0.0)
        gone = absent(f"the record shows another cause: {evidence.record.shown[code]}")
        results |= {other: gone for other in kin if other not in evidence.record.shown}
    return results


def _source(cause: Cause, results: Mapping[str, Result]) -> str | None:
    """Code of the cause that brings this one with it by the record; None if there is none."""
    return next((code for code in cause.follows_from if code in results and results[code].on_record), None)


def _consequences(causes: Sequence[Cause], first: Mapping[str, Result], undone: Sequence[Likely]) -> Iterator[Likely]:
    """The causes that hold because one that was undone brings them with it."""
    titles = {item.cause.code: item.cause.title_at(item.side) for item in undone}
    for cause in causes:
        result = first[cause.code]
        if result.holds and result.share is not None and (source := _source(cause, first)) in titles:
            yield Likely(cause, result.effect, result.parameters, None, 0.0, "high", follows=titles[source or ""])


def _result(cause: Cause, evidence: Evidence) -> Result:
    if (veto := evidence.record.ruled_out.get(cause.code)) is not None:
        return absent(f"the record rules it out: {veto}")
    if not evidence.has(*cause.needs):
        return Result(False, "")
    if len(evidence) < FEW_TOKENS:
        return Result(False, "", too_few=f"{len(evidence)} tokens are too few")
    result = cause.test(evidence)
    moves = moved(cause, evidence, result)
    return replace(result, holds=False, effect=f"{result.effect}, but {moves}") if moves else result


def _best(causes: Sequence[Cause], results: Mapping[str, Result]) -> Cause | None:
    """The cause that explains most of what is left; None if none explains enough."""
    fits = [results[cause.code].fit for cause in causes if results[cause.code].holds]
    best = max(
        fits, default=0.0
    )  # the best of the courses that predict the steps nearly as well; the others are its rivals
    scored = [
        (score, cause)
        for cause in causes
        if results[cause.code].fit in (0.0, best) and (score := _score(cause, results[cause.code])) is not None
    ]
    return max(scored, key=lambda pair: pair[0], default=(0.0, None))[1]


def _score(cause: Cause, result: Result) -> float | None:
    """The share that the cause explains and a bonus for being specific; None if it is not worth naming."""
    if not result.holds or result.share is None:
        return None
    if cause.code in CERTAIN and (result.share.share > LEAST_OF_WHOLE or cause.code in OF_FEW_TOKENS):
        return max(result.share.share, 0.0) + (2.0 if cause.comes_first else 1.0)
    if result.share.share < LEAST_SHARE:
        return None
    blamed = 0.0 if result.bad is None else float(result.bad.mean())
    return result.share.share + BONUS[cause.kind] - BLAME * blamed


def _likely(
    cause: Cause, results: Mapping[str, Result], left: Evidence, remaining: Part, causes: Sequence[Cause]
) -> Likely:
    """The cause as a likely one. remaining: the part of the whole gap that is left before it is undone."""
    result = results[cause.code]
    assert result.share is not None
    free = [other for other in causes if _source(other, results) is None]
    equals = [other for other in free if _is_rival(other, results[other.code], cause, result.share)]
    by_fit = sorted(equals, key=lambda other: -results[other.code].fit)
    same = (*result.alike, *(each.code for each in by_fit), *(c for c in cause.alike if _is_open(results.get(c))))
    rivals = [CAUSE[code] for code in dict.fromkeys(same) if code not in left.record.ruled_out][:MOST_RIVALS]
    own = remaining.times(result.share)
    sizes = {
        code: remaining.times(held.share).size
        for code, held in results.items()
        if held.holds and held.share is not None
    }
    proved = left.record.shown.get(cause.code, "")
    found = doubts(cause, result.share, left, tuple(other.code for other in equals), result.bad) + result.doubts
    found = () if proved else found
    return Likely(
        cause,
        "; ".join(filter(None, (result.effect, proved, "" if left.record.side_of else left.record.side_because))),
        result.parameters,
        _with_steps(result.share, left, result.undone),
        own.size,
        "high" if proved else confidence(cause, found),
        rivals=() if proved else tuple(_rival(other, cause, sizes.get(other.code)) for other in rivals),
        doubts=found,
        error=own.error,
        side=left.record.side_at(cause.code),
        fact=proved,
    )


def _rival(other: Cause, cause: Cause, of_whole: float | None = None) -> Rival:
    check = cause.mistaken_for.get(other.code) or other.mistaken_for.get(cause.code) or other.confirm
    return Rival(other, of_whole, check)


def _is_open(result: Result | None) -> bool:
    """True if this evidence does not exclude a cause: its signature is there, is not sure, or could not be looked for."""
    return result is None or result.holds or bool(result.too_few) or not result.effect or _is_loose(result)


def _is_loose(result: Result) -> bool:
    """True if a cause without a clear signature may still explain most of the gap."""
    share = result.share
    return not result.holds and share is not None and share.share < LOOSE < share.most


def _with_steps(share: Share, left: Evidence, undone: Evidence | None) -> Share:
    """The share with the gap of each step. A share of whole steps has none: steps left out get the level of the others."""
    if share.over_steps or not left.has("step"):
        return share
    without_fault = np.isin(left.facts["step"], [] if undone is None else undone.facts["step"])
    return replace(share, over_steps=over_steps(left, np.where(without_fault, left.distance, share.after)))


def _is_rival(other: Cause, result: Result, chosen: Cause, share: Share) -> bool:
    """True if another cause of the same kind explains as much: then the record does not tell the two apart."""
    if other is chosen or not result.holds or result.share is None or BONUS[other.kind] < BONUS[chosen.kind]:
        return False
    return result.share.share > max(share.share - 2 * float(np.hypot(result.share.error, share.error)), LEAST_SHARE)


def _silent(cause: Cause, result: Result, record: OnRecord) -> Likely:
    fact = record.shown.get(cause.code, "")
    effect, side = fact or result.effect, record.side_at(cause.code)
    return Likely(cause, effect, result.parameters, None, 0.0, "high", side=side, fact=fact)


def _why_not(cause: Cause, result: Result, evidence: Evidence) -> tuple[str, tuple[str, ...]] | None:
    """Why the cause can neither be shown nor excluded; None if it can."""
    missing = tuple(name for name in cause.needs if not evidence.has(name))
    if missing and cause.code not in evidence.record.ruled_out:
        absent = tuple(name for name in missing if name not in evidence.partial)
        names = " and ".join(FACTS[name] for name in absent or missing)
        there = "not on record" if absent else "on record for only some of the tokens that were read"
        return f"{names} {'is' if len(absent or missing) == 1 else 'are'} {there}", absent
    if result.too_few:
        return result.too_few, ()
    if _is_loose(result) and result.share is not None:
        return f"{result.effect}; with this much evidence it may explain up to {min(result.share.most, 1):.0%}", ()
    return None


def _excluded(cause: Cause, result: Result, likely: Sequence[Likely]) -> Excluded:
    if not result.holds:
        return Excluded(cause, result.effect, result.would_show)
    if result.share is not None and result.share.share < LEAST_SHARE:
        explained = (
            "" if "explain" in result.effect else f", which explains {max(result.share.share, 0):.1%} of the gap"
        )
        return Excluded(cause, f"{result.effect}{explained}", "")
    undone = likely[0].cause.title if likely else "the rest"
    return Excluded(cause, f"its trace vanishes when this is undone: {undone}", "")
