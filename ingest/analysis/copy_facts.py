"""Gaps whose sides are one, bit for bit, in words: at which steps, and what that makes of the gap."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.metric import SAMPLED
from ratioscope.record import GAPS

from .copies import copied_steps

if TYPE_CHECKING:
    from ..run import Run

MEANING = {"mismatch": " (bypass)", "drift": ": the drift is 0 by construction, and the clip never acts"}


@dataclass(frozen=True)
class CopyFact:
    """A gap of which one side is a copy of the other at some steps."""

    gap: str
    steps: tuple[int, ...]
    """Ascending."""
    of: int
    """Number of steps with a token of this gap."""

    @property
    def whole(self) -> bool:
        """True if no step of the gap is measured."""
        return len(self.steps) == self.of

    @property
    def words(self) -> str:
        """Which side is a copy of which, and where, without a full stop."""
        earlier, later = GAPS[self.gap]
        copy = f"{later} is a copy of {earlier}, bit for bit"
        if self.whole:
            return f"{copy}{MEANING.get(self.gap, '')}"
        return f"{copy}, at {len(self.steps)} of {self.of} steps: nothing is measured there"

    @property
    def head(self) -> str:
        """The words at the beginning of a sentence."""
        return self.words[0].upper() + self.words[1:]


def judged_first(run: "Run") -> tuple[str, ...]:
    """The gaps of the run, first the one that is judged, which every face opens on: the total if the mismatch is a copy."""
    return run.once(_judged_first)


def _judged_first(run: "Run") -> tuple[str, ...]:
    known = [gap for gap in SAMPLED if gap in run.gaps]
    whole = {each.gap for each in copy_facts(run) if each.whole} if len(known) > 1 else set()
    return tuple(dict.fromkeys([*[gap for gap in known if gap not in whole][:1], *run.gaps]))


def copy_facts(run: "Run") -> tuple[CopyFact, ...]:
    """The gaps that are a copy at one step at least, in the order of GAPS."""
    copied = copied_steps(run)
    if not copied:
        return ()
    frame = run.metrics(by=("step",), names=("tokens",))
    return tuple(
        CopyFact(gap, tuple(sorted(copied[gap])), len(frame.filter(pl.col(f"{gap}/tokens") > 0)))
        for gap in GAPS
        if gap in copied
    )
