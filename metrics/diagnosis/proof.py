"""Proof from outside the gap: digests of weights show or exclude causes and tell a side, and so does a third reading.

That reading reproduces the log-probs of a side under one change."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ..grading.finding import Confidence
from .catalogue import CAUSE
from .diagnosis import Diagnosis, Excluded, Likely, Rival
from .on_record import OnRecord, Side
from .share import Share


def with_proofs(record: OnRecord, proofs: Iterable[OnRecord]) -> OnRecord:
    """The record with what each of these shows and rules out, the strongest first: what it shows another one cannot rule out."""
    for proof in proofs:
        shown = {**proof.shown, **record.shown}
        ruled_out = {**proof.ruled_out, **record.ruled_out}
        record = replace(record, shown=shown, ruled_out={c: why for c, why in ruled_out.items() if c not in shown})
        if record.side is None and proof.side is not None:
            record = replace(record, side=proof.side, side_because=proof.side_because, side_of=proof.side_of)
    return record


@dataclass(frozen=True)
class Reproduction:
    """A side of the gap that a third reading reproduces, fits or explains in part."""

    side: Side
    codes: tuple[str, ...]
    """A code for each fault that acts at once; empty if the model as it is reproduces the side."""
    alternative: str
    """The change under which the model reads as this side does, in words."""
    words: str
    """The finding in a sentence."""
    confidence: Confidence
    """high: proof. medium: it fits best, and the precision of the side is not on record. low: in part."""
    share: float
    """The part of the K3 between the side and the model that the change takes away, 0 to 1."""
    others: tuple[str, ...] = ()
    """Codes of other changes that reproduce the side as well."""
    reader: str = "the referee"
    """The reader whose log-probs they are."""


def with_reproductions(diagnosis: Diagnosis, found: Sequence[Reproduction]) -> Diagnosis:
    """The diagnosis with these findings: proof comes first, what else would explain the gap is excluded; other findings are told.

    Proof excludes other causes where each side on record is reproduced: then nothing else acts on the tokens that were read.
    """
    shown = [item for one in found for item in _shown(diagnosis, one)]
    first = [item for item in shown if item.confidence != "low"]
    codes = {item.cause.code for item in first}
    others = [item for item in diagnosis.likely if item.cause.code not in codes]
    kept = {item.cause.code for item in others}
    last = [item for item in shown if item.confidence == "low" and item.cause.code not in kept]
    open_ = [item for item in diagnosis.cannot_tell if item.cause.code not in codes]
    left = [item for item in diagnosis.excluded if item.cause.code not in codes]
    if not found or any(one.confidence != "high" for one in found):
        likely = (*first, *others, *last)
        return replace(diagnosis, likely=likely, cannot_tell=tuple(open_), excluded=tuple(left))
    because = f"a third reading reproduces both sides ({', '.join(f'{one.side}: {one.alternative}' for one in found)})"
    gone = [item for item in others if item.share is not None]
    why = {item.cause.code: f"its signature has another cause: {item.effect}" for item in gone}
    why |= {item.cause.code: "" for item in open_ if item.cause.kind != "nothing"}
    return replace(
        diagnosis,
        likely=(*first, *(item for item in others if item not in gone)),
        cannot_tell=tuple(item for item in open_ if item.cause.code not in why),
        excluded=(*(Excluded(CAUSE[code], because, words) for code, words in why.items()), *left),
        rest=diagnosis.gap * max(0.0, 1 - sum(item.of_whole for item in first)),
        rest_is_noise=True,
    )


def _shown(diagnosis: Diagnosis, one: Reproduction) -> list[Likely]:
    """One cause for each change, with an equal part of the share."""
    part = one.share / max(1, len(one.codes))
    share = Share(part, 0.0, diagnosis.gap, diagnosis.gap * (1 - part))
    where = f"on the {one.side}'s side ({one.alternative})"
    return [
        Likely(
            CAUSE[code],
            f"the {one.side}'s log-probs are those of {one.reader} {one.alternative}",
            {},
            share,
            part,
            one.confidence,
            where,
            tuple(Rival(CAUSE[other], None, CAUSE[other].confirm) for other in one.others),
            side=one.side,
            proved=one.words,
        )
        for code in dict.fromkeys(one.codes)
    ]
