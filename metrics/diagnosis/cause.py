"""Cause: a hypothesis about a gap. It is data: needs, test, undoing, remedy, and what it is mistaken for."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from ratioscope.arrays import Booleans

from .evidence import Evidence
from .on_record import Side
from .share import Share

UndoKind = Literal["changed numbers", "recorded label", "place", "cluster", "tail", "rest", "nothing"]
"""The way a fault is undone: numbers are changed back, or tokens are left out by a label, place, cluster or tail.

rest: the cause is named by elimination. nothing: the fault takes log-ratios away, so that no share of the gap can be computed."""
Parameter = float | int | str
Predicted = Literal["constant", "grows", "jumps", "resets", "any"]
"""The course over the steps that a cause predicts.

constant: a setting, which changes at no step but its first. grows: weights that drift apart. jumps: a load that stays.
resets: what a sync mends. any: a cause that follows the data or the record, or has no course.
"""


@dataclass(frozen=True)
class Result:
    """The outcome of a test of one cause in some evidence."""

    holds: bool
    """True if the signature of the cause is there beyond chance."""
    effect: str
    """The measured effect in words, with its error: "replica b has 7.1 ± 0.4 times the gap of the others"."""
    would_show: str = ""
    """The smallest effect that would have been seen, in words."""
    share: Share | None = None
    """The share of the gap that the undoing explains; None if the fault leaves no trace in the gap."""
    undone: Evidence | None = None
    """The evidence without the fault; None if the fault leaves no trace in the gap."""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    """Name -> estimated parameter of the fault."""
    bad: Booleans | None = None
    """The tokens that have the fault, if only some of them have it; shape (tokens,)."""
    doubts: tuple[str, ...] = ()
    """Reasons why the cause is less sure than its share says, each of one level."""
    alike: tuple[str, ...] = ()
    """Codes of causes that would look the same in this evidence, beside those that always do."""
    fit: float = 0.0
    """Gain of the log-likelihood of the steps by the course of the cause over one level, see `Course.fit`; 0 if it has none."""
    too_few: str = ""
    """Reason why this evidence can neither show nor exclude the cause; empty if it can."""
    on_record: bool = False
    """True if events on record show the cause beside its signature: then what follows from it is not named as a cause."""


@dataclass(frozen=True)
class Cause:
    """One hypothesis about a gap."""

    code: str
    """Its name in JSON, settings and links."""
    title: str
    """The fault in a few words."""
    kind: UndoKind
    test: Callable[[Evidence], Result]
    """Tests the signature and undoes the fault."""
    undoing: str
    """The undoing in words, after "the gap": "re-aligned by one token"."""
    meaning: str
    """The consequence of the fault for the run."""
    remedy: str
    """The change that mends it."""
    confirm: str
    """The one check that confirms the cause."""
    needs: tuple[str, ...] = ()
    """Facts of the evidence without which it cannot be tested."""
    estimate: str = ""
    """A format string of the parameters for the title, such as "temperature {temperature}"."""
    partial: str = ""
    """Reason why the undoing can reach only a part of the fault; empty if it reaches all of it."""
    localises: str = ""
    """The bad tokens in words with the parameters, if the cause tells which are bad and not why: "at replica {replica}".

    Then their own mechanism is looked for."""
    comes_first: bool = False
    """True if no other cause can be judged in evidence with this fault: then it is undone before all others."""
    follows_from: tuple[str, ...] = ()
    """Codes of causes that bring this signature with them: it is not named beside them, or after them if it has no undoing."""
    course: Predicted = "any"
    """The course over the steps that the cause predicts. A constant cause is out if what it explains grows: `constancy`."""
    setting: Callable[[Evidence], tuple[float, float]] | None = None
    """(the parameter of a constant cause in some evidence, its standard error), 0 without the fault; None if it has none."""
    alike: tuple[str, ...] = ()
    """Codes of causes with the same signature: the record seldom tells them apart."""
    mistaken_for: Mapping[str, str] = field(default_factory=dict)
    """Code of another cause -> the check that tells the two apart."""
    sided: Mapping[Side, str] = field(default_factory=dict)
    """Side -> the title if the fault is known to be there; `title` names no side that is not."""

    def title_at(self, side: Side | None) -> str:
        """The title, with the side at fault if that is known."""
        return self.title if side is None else self.sided.get(side, self.title)


def absent(why: str) -> Result:
    """A cause without any trace. why: the measured absence in words."""
    return Result(False, why)


def undecided(why: str) -> Result:
    """A cause that this evidence can neither show nor exclude."""
    return Result(False, "", too_few=why)
