"""The facts of a likely cause, in the same words on the page, in the report and in the terminal.

The changes of a gap over the steps in words: since when, how much, which part is composition, and what changed beside it.
"""

import math
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ratioscope.metrics.diagnosis.catalogue import CAUSE
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely

from .digits import digits, plus_minus, signed, whole_percent
from .digits import percent as part
from .identity_words import NAME as IDENTITY
from .identity_words import identity_words
from .sentence import capital, sentence
from .trust_words import NAME as TRUST
from .trust_words import trust_words

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.growth import Growth, LastingChange, SliceSplit
    from ratioscope.ingest.analysis.known_context import KnownContext
    from ratioscope.ingest.analysis.nearby_changes import NearbyChange

MIX_OF = {"position": "lengths", "lag": "version lags", "turn": "turns", "replica": "replicas"}
"""Slice -> its buckets in words."""
TOLD = 0.1
"""A composition by a further slice that is less than this share of the change is not told."""
PARTS = ("probability", "tokens before", "tokens after", "K3 before", "K3 after", "by composition", "by size")
"""Head of the table of `change_parts`. The last two are parts of the change, in nats/token."""
MOST_BESIDE = 6
"""At most so many things beside a change are told; --json holds all."""


def share_words(item: Likely) -> str:
    """Share and confidence of a cause in one line."""
    sure = f"{item.confidence} confidence"
    if item.share is None:
        return f"{item.weight} · {sure}"
    error = item.error if 5e-5 < item.error < 1 else math.nan
    return f"{item.explains(whole_percent(item.of_whole, error))} · {sure}"


def over_steps(item: Likely) -> pl.DataFrame:
    """The gap of each step before and after the undoing."""
    rows = [(at.step, at.tokens, at.before, at.after) for at in (item.share.over_steps if item.share else ())]
    schema = {"step": pl.Int64, "tokens": pl.Int64, "before": pl.Float64, "after": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def cause_facts(item: Likely, context: "KnownContext | None" = None) -> list[tuple[str, str]]:
    """The finding, its proof and meaning, the remedy, the check that confirms it, and causes it is mistaken for."""
    cause = item.cause
    if item.follows:
        return [("found", sentence(item.effect))]
    do = context.do_for(cause) if context else cause.remedy
    rows = [
        ("found", sentence(item.effect)),
        ("proof", item.proof),
        ("means", cause.meaning),
        ("do", do),
        *_context_facts(cause.code, context),
        ("confirm", "" if do == cause.confirm else cause.confirm),
        *(("or else", f"{capital(title_of(code))}? {text}") for code, text in cause.mistaken_for.items()),
        ("as likely", sentence("; ".join(rival.words for rival in item.rivals))),
    ]
    return [(name, text) for name, text in rows if text]


def _context_facts(code: str, context: "KnownContext | None") -> list[tuple[str, str]]:
    """The remedy in the run's trainer, and the correction to use meanwhile."""
    if context is None:
        return []
    remedy, bridge = context.remedies.get(code), context.bridge_for(code)
    return [
        (f"do in {context.trainer}", f"{remedy.do} ({_place(remedy.source)})" if remedy else ""),
        ("meanwhile", sentence(bridge.words) if bridge else ""),
    ]


def context_facts(context: "KnownContext") -> list[tuple[str, str]]:
    """Changes over the steps, the published range, the run's own correction, odd counts, and faults of the settings on record."""
    if context.is_parity:
        return sentinel_facts(context)
    told = {fact.code for fact in context.trust.copies}
    return [
        *sentinel_facts(context),
        *growth_facts(context.growth),
        ("published range", sentence(context.reference.words)),
        ("own correction", sentence(context.correction.words)),
        *([(TRUST, trust)] if (trust := trust_words(context.trust)) else []),
        *([] if context.identity is None else [(IDENTITY, identity_words(context.identity))]),
        *(
            (each.code.replace("_", " "), sentence(each.words))
            for each in context.groups
            if each.is_odd and each.code not in told
        ),
        *((each.code.replace("_", " "), f"{each.words} ({_place(each.source)})") for each in context.faults),
    ]


def sentinel_facts(context: "KnownContext") -> list[tuple[str, str]]:
    """The numbers in place of log-probs: their places, and what the loss did with them; nothing without one."""
    own = context.sentinels
    return [] if own is None else [("sentinels", own.words), ("of sentinels", own.effect)]


def _place(source: str) -> str:
    """A source without the beginning that would make it a link: reports link to nothing."""
    return source.replace("https://", "")


def settings_of(code: str, context: "KnownContext | None") -> str:
    """The settings of the correction to use meanwhile, in the trainer's syntax; empty if there are none for this cause."""
    bridge = None if context is None else context.bridge_for(code)
    return bridge.settings if bridge else ""


def stays_open(diagnosis: Diagnosis) -> str:
    """The titles of all causes that the record cannot tell, in one sentence; empty if there are none."""
    titles = "; ".join(item.cause.title for item in diagnosis.cannot_tell)
    return sentence(f"{len(diagnosis.cannot_tell)} causes: {titles}") if titles else ""


def title_of(code: str) -> str:
    """The title of a cause; its code if there is no such cause."""
    return CAUSE[code].title if code in CAUSE else code


def growth_facts(growth: "Growth") -> list[tuple[str, str]]:
    """Name and text of each change and of the things beside it; one line if there is none."""
    if growth.because:
        return [("changes over the steps", f"Not available, because {growth.because}.")]
    if not growth.changes:
        steps = f"{growth.steps:,} steps ({growth.first} to {growth.last})"
        would = f"; a lasting factor of {growth.least:.2f} or more would show" if math.isfinite(growth.least) else ""
        return [("changes over the steps", f"None: the gap has one level over {steps}{would}.")]
    rows = []
    for change in growth.changes:
        name = f"step {change.course.onset}"
        rows += [(f"change at {name}", change_words(change)), (f"beside {name}", beside_words(change))]
    return rows


def change_words(change: "LastingChange") -> str:
    """The change in sentences: since when, by how much, and its parts."""
    return " ".join(part for part in (_when(change), *_parts(change)) if part)


def _when(change: "LastingChange") -> str:
    own = change.course
    factor = f"{plus_minus(own.factor, own.factor * own.error)} times"
    dated = (
        f"{own.onset} (95% interval: {own.earliest} to {own.latest})" if own.earliest < own.latest else str(own.onset)
    )
    moved = "grew" if own.factor > 1 else "fell to"
    match own.kind:
        case "sawtooth":
            times = f"{digits(own.factor)} times its size and falls back {len(own.falls)} times"
            return f"From step {own.onset} on the gap grows to up to {times}, first at step {own.falls[0]}."
        case "rise":
            return f"The gap {moved} {factor} from step {dated} to step {change.last}."
        case _:
            return f"The gap {moved} {factor} at step {dated}."


def _parts(change: "LastingChange") -> list[str]:
    """Composition and size in sentences."""
    if not change.splits or change.splits[0].slice != "probability":
        return ["Its parts are not available, because no finite K3 by probability is on record on both sides."]
    first, *others = change.splits
    split = first.split
    if math.isnan(split.share):
        return [
            "Its parts are not available, because the means over all tokens "
            f"({digits(split.before, 2)} before, {digits(split.after, 2)} after) differ by less than two errors: few tokens "
            "outweigh the rest."
        ]
    factor = f"{digits(split.size_factor)} times as much as before"
    return [
        f"{_percent(first)} of the change comes from the mix of tokens: {_moved(first)}.",
        f"{whole_percent(1 - split.share)} is size: tokens of equal probability differ {factor}."
        + (" The two parts are opposed." if split.composition * split.size < 0 and _is_opposed(split.share) else ""),
        *(
            f"{_part(each)} of the change comes with the {MIX_OF[each.slice]}: {_moved(each)}."
            for each in others
            if _is_told(each)
        ),
    ]


def _is_opposed(share: float) -> bool:
    """True if both parts are too large to be noise around 0."""
    return not -TOLD < share < 1 + TOLD


def _percent(own: "SliceSplit") -> str:
    return whole_percent(own.split.share, own.split.share_error)


def _part(own: "SliceSplit") -> str:
    """The share of the change: all of it where the error cannot tell it from all."""
    split = own.split
    return "All" if abs(1 - split.share) <= split.share_error else _percent(own)


def _is_told(own: "SliceSplit") -> bool:
    split = own.split
    return bool(abs(split.share) > max(TOLD, 2 * split.share_error)) and own.slice in MIX_OF


def _moved(own: "SliceSplit") -> str:
    """The growing part of the mix that moved the mean most, with its share before and after."""
    split = own.split
    if not abs(split.share) > 2 * split.share_error and abs(split.share) < TOLD:
        return "the mix of probabilities is as before"
    toward = split.compositions * np.sign(split.composition)
    before, after = split.shares
    at = int(np.argmax(np.where(after > before, toward, -np.inf)))
    return f"more tokens of {own.slice} {own.labels[at]} ({part(after[at])} of all, {part(before[at])} before)"


def change_parts(change: "LastingChange") -> list[tuple[str, ...]]:
    """One row per bucket of probability, in the columns PARTS, and one of all tokens; empty without a split."""
    if not change.splits or change.splits[0].slice != "probability":
        return []
    own, found = change.splits[0], change.splits[0].split
    by_size = (found.sizes[1] - found.sizes[0]) * (found.shares[0] + found.shares[1]) / 2
    columns = (*found.shares, *found.sizes, found.compositions, by_size)
    rows = [
        (label, f"{was:.1%}", f"{now:.1%}", digits(low, 2), digits(high, 2), signed(moved, 2), signed(grown, 2))
        for label, was, now, low, high, moved, grown in zip(own.labels, *columns, strict=True)
    ]
    total = (digits(found.before, 2), digits(found.after, 2), signed(found.composition, 2), signed(found.size, 2))
    return [*rows, ("all tokens", "100%", "100%", *total)]


def beside_words(change: "LastingChange") -> str:
    """The things on record that changed near the step, the nearest first."""
    first, last = change.window.first, change.window.last
    where = f"step {first}" if first == last else f"steps {first} to {last}"
    if change.course.falls:
        return (
            f"{'; '.join(each.words for each in change.beside)}." if change.beside else "No event is near most falls."
        )
    if not change.beside:
        return f"Nothing recorded changed within {where}."
    told = [_thing(each) for each in change.beside[:MOST_BESIDE]]
    more = len(change.beside) - len(told)
    rest = f"; and {more} more" if more else ""
    return f"On record within {where}, not shown to be causes: {'; '.join(told)}{rest}."


def _thing(each: "NearbyChange") -> str:
    usual = f" (by chance in {each.usual:.0%} of such ranges of steps)" if each.usual > 0.05 else ""
    return f"at step {each.step} {each.words}{usual}"
