"""Proof from outside the gap: digests of weights, or a referee, show or exclude causes and tell a side."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from .on_record import OnRecord, Side


@dataclass(frozen=True)
class Proof:
    """The evidence of one source. The fields are those of OnRecord, and empty where the source tells nothing."""

    shown: Mapping[str, str] = field(default_factory=dict)
    ruled_out: Mapping[str, str] = field(default_factory=dict)
    side: Side | None = None
    side_because: str = ""
    side_of: tuple[str, ...] = ()


def with_proofs(record: OnRecord, proofs: Iterable[Proof]) -> OnRecord:
    """The record with these proofs, the strongest first: it tells the side, and what it shows another one cannot rule out."""
    for proof in proofs:
        shown = {**proof.shown, **record.shown}
        ruled_out = {**proof.ruled_out, **record.ruled_out}
        record = replace(record, shown=shown, ruled_out={c: why for c, why in ruled_out.items() if c not in shown})
        if record.side is None and proof.side is not None:
            record = replace(record, side=proof.side, side_because=proof.side_because, side_of=proof.side_of)
    return record
