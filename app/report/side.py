"""The section "Which side is off?": the answer of the run's referee, without secrets and home folders."""

from dataclasses import replace
from typing import TYPE_CHECKING

from ..referee.side_off import SideOff, side_off
from .privacy import scrubbed_text

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


def side(run: "Run") -> SideOff | None:
    """None if no referee read the run."""
    side = side_off(run)
    if side is None:
        return None
    facts = tuple((scrubbed_text(label), scrubbed_text(text)) for label, text in side.facts)
    return replace(side, sentence=scrubbed_text(side.sentence), facts=facts)
