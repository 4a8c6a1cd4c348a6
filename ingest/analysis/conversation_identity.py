"""The result of `ratioscope identity` on record: how many turns were trained on ids that rendering does not give."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any

import polars as pl

from ratioscope.layout import IDENTITY

if TYPE_CHECKING:
    from ..run import Run


@dataclass(frozen=True)
class Identity:
    """The turns that were compared, by class: see metrics/analysis/conversation_identity.py."""

    clean: int
    """Trained turns that rendering gives."""
    realigned: int
    """Trained turns with another answer."""
    forked: int
    """Trained turns with other ids before the answer."""
    sequences: int
    """Sequences that were compared."""
    steps: tuple[int, ...]
    is_rendered: bool
    """True if conversations were rendered with the chat template; False if only answers were decoded and encoded."""
    tokenizer: str
    """The name of the tokenizer's folder."""
    ways: Mapping[str, int] = field(default_factory=dict)
    """Way in which rendering differs -> differences."""
    special: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Special token -> times that it vanishes, and times that rendering adds it."""
    left_out: Mapping[str, int] = field(default_factory=dict)
    """Reason -> sequences that were not compared."""

    @property
    def turns(self) -> int:
        """Trained turns that were compared."""
        return self.clean + self.realigned + self.forked

    @property
    def differing(self) -> int:
        """Turns that rendering does not give."""
        return self.realigned + self.forked


def identity_of(run: "Run") -> Identity | None:
    """The newest result on record; None without one, or if another version wrote it."""
    notes = run.events.filter(pl.col("event") == IDENTITY).sort("time", descending=True)["note"]
    for note in notes:
        try:
            told = json.loads(note)
            own = {each.name: told[each.name] for each in fields(Identity)}
            numbers = {name: int(own[name]) for name in ("clean", "realigned", "forked", "sequences")}
            special = {str(name): (int(lost), int(added)) for name, (lost, added) in own["special"].items()}
            counts = {name: {str(key): int(times) for key, times in own[name].items()} for name in ("ways", "left_out")}
            texts = {"tokenizer": str(own["tokenizer"]), "is_rendered": bool(own["is_rendered"])}
            return Identity(**numbers, **counts, **texts, special=special, steps=tuple(map(int, own["steps"])))  # type: ignore[arg-type]
        except (ValueError, TypeError, KeyError, AttributeError):
            continue
    return None


def plain_identity(identity: Identity) -> dict[str, Any]:
    """The result as values that JSON can hold."""
    return {"turns": identity.turns, **asdict(identity)}
