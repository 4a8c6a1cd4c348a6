"""Proof from outside the gap: digests of weights show or exclude the causes that are about their delivery."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .catalogue import CAUSE
from .diagnosis import Diagnosis, Excluded, Likely

DELIVERY = ("never_synced", "sync_broke", "corrupted_load", "stuck_replica", "missed_syncs")
"""Codes of causes in which an engine does not hold the weights that it was sent."""


@dataclass(frozen=True)
class WeightProof:
    """The evidence of digests of weights about one diagnosis."""

    shown: Mapping[str, str] = field(default_factory=dict)
    """Code of a cause that the digests show -> the finding in words."""
    equal: str = ""
    """A sentence that all digests are equal; empty if they are not, or do not cover the steps of the diagnosis."""


def with_proof(diagnosis: Diagnosis, proof: WeightProof) -> Diagnosis:
    """The diagnosis with this proof: causes that digests show are likely, and equal digests exclude every failed delivery."""
    return _excluding(diagnosis, proof.equal) if proof.equal else _showing(diagnosis, proof.shown)


def _excluding(diagnosis: Diagnosis, words: str) -> Diagnosis:
    """Failed deliveries are excluded. A signature that looked like one stays unexplained."""
    gone = [item for item in diagnosis.likely if item.cause.code in DELIVERY]
    seen = {item.cause.code: item.effect for item in gone}
    tested = {
        *seen,
        *(item.cause.code for item in diagnosis.excluded),
        *(item.cause.code for item in diagnosis.cannot_tell),
    }
    excluded = [
        Excluded(
            CAUSE[code],
            f"digests equal: {words}",
            f"its signature has another cause: {seen[code]}" if code in seen else "",
        )
        for code in DELIVERY
        if code in tested
    ]
    return replace(
        diagnosis,
        likely=tuple(item for item in diagnosis.likely if item.cause.code not in DELIVERY),
        cannot_tell=tuple(item for item in diagnosis.cannot_tell if item.cause.code not in DELIVERY),
        excluded=(*excluded, *(item for item in diagnosis.excluded if item.cause.code not in DELIVERY)),
        rest=min(diagnosis.gap, diagnosis.rest + diagnosis.gap * sum(item.of_whole for item in gone))
        if gone
        else diagnosis.rest,
        rest_is_noise=diagnosis.rest_is_noise and not seen,
    )


def _showing(diagnosis: Diagnosis, shown: Mapping[str, str]) -> Diagnosis:
    """Likely causes get the proof. A cause that only the digests show has no share of the gap."""
    if not shown:
        return diagnosis
    proven = f"digests prove it: {'; '.join(dict.fromkeys(shown.values()))}"
    has_signature = any(item.cause.code in DELIVERY for item in diagnosis.likely)
    likely = [
        replace(item, effect=f"{item.effect}; {proven}", confidence="high", doubts=())
        if item.cause.code in DELIVERY
        else item
        for item in diagnosis.likely
    ]
    more = (
        []
        if has_signature
        else [Likely(CAUSE[code], f"digests: {why}", {}, None, 0.0, "high") for code, why in shown.items()]
    )
    named = {item.cause.code for item in (*likely, *more)}
    return replace(
        diagnosis,
        likely=(*likely, *more),
        excluded=tuple(item for item in diagnosis.excluded if item.cause.code not in named),
        cannot_tell=tuple(item for item in diagnosis.cannot_tell if item.cause.code not in named),
    )
