"""Facts of the record about a whole run, outside of its tokens: what they rule out, and what they show."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Side = Literal["engine", "trainer"]


@dataclass(frozen=True)
class OnRecord:
    """Facts about a whole run. What is not on record is empty, and then neither rules out nor shows anything."""

    ruled_out: Mapping[str, str] = field(default_factory=dict)
    """Code of a cause that the record rules out -> the fact that does, in words: a veto, however well its signature fits."""
    shown: Mapping[str, str] = field(default_factory=dict)
    """Code of a cause that the record shows by itself -> the fact that does, in words."""
    side: Side | None = None
    """The side at fault, if a digest, a version, a referee, a parity or a replica tells it; None if nothing does."""
    side_because: str = ""
    """The fact that tells the side, in words."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Dotted key -> value as JSON, as the newest attempt had them."""
