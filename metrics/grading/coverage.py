"""Coverage: what a record knows of a question. A verdict is green only if the question is measured.

The question of a verdict is the gap between the policy that sampled and the policy that is trained.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

LEAST_SHARE = 0.9
"""A run, or a step, of which a smaller share was measured is not healthy. Convention; `measured` in a limits file."""
LEAST_APART = 0.5
"""A step is not healthy, too, if sequences that may be copies leave less than this share of it, or of the run less than the
share above: aligned stacks agree to the last bit on some sequences, and a fault shows in the others of the step. Convention."""
LONGER = 1.25
"""Missing sequences that are so many times as long as the others, or as short, are no random part. Convention."""
FEWEST = 3
"""Fewer missing sequences say nothing about their lengths."""
_NAMED = 3
"""Reasons that are told; the others are counted."""


class Known(StrEnum):
    """The state of a question. The value is the word on every face."""

    MEASURED = "measured"
    PARTLY = "partly measured"
    COPY = "a copy"
    SILENT = "the writer is silent"
    NOT_MEASURED = "not measured"


NOT_MEASURED, PARTLY = Known.NOT_MEASURED.value, Known.PARTLY.value
"""The words of a verdict that found no fault, but did not measure everything."""


@dataclass(frozen=True)
class Coverage:
    """The part of a question that is known."""

    known: Known
    share: float | None = None
    """Share of the offered sequences that was measured, 0 to 1; None if nobody counted them."""
    why: str = ""
    """The part that is not known, and why, in sentences; empty if all is measured."""
    remedy: str = ""
    """The argument or setting that would measure it."""

    @property
    def is_measured(self) -> bool:
        return self.known == Known.MEASURED

    @property
    def word(self) -> str:
        """The word of a verdict without a fault: healthy only if everything was measured."""
        if self.is_measured:
            return "healthy"
        return PARTLY if self.known in (Known.PARTLY, Known.SILENT) else NOT_MEASURED


MEASURED = Coverage(Known.MEASURED)


@dataclass(frozen=True)
class Absence:
    """Sequences that were offered, and of which the gap was not measured, for one reason."""

    reason: str
    """Their fate in a few words, such as "dropped (malformed: ...)"."""
    by_step: Mapping[int, float]
    """step -> number of sequences."""
    unplaced: float = 0
    """Sequences whose step is not known."""
    tokens: int | None = None
    """Number of their tokens; None if nobody counted them."""
    is_possible: bool = False
    """True for sequences that may be measured, or copies: the record does not tell."""
    placeholder: bool = False
    """True for values that no policy computed: however few they are, their step is measured in part."""
    remedy: str = "Mend what keeps these sequences out of the record, then look again."
    """The change that would have them measured."""

    @property
    def sequences(self) -> float:
        return sum(self.by_step.values()) + self.unplaced


@dataclass(frozen=True)
class Offered:
    """The sequences of a run that a gap was measured on, and those that it was not."""

    measured: Mapping[int, float]
    """step -> number of sequences."""
    tokens: float
    """Number of their tokens."""
    absences: tuple[Absence, ...]

    @property
    def share(self) -> float | None:
        """Share of the sequences that was measured; None if there is none."""
        measured = sum(self.measured.values())
        whole = measured + sum(absence.sequences for absence in self.absences)
        return measured / whole if whole else None

    def thin_steps(self, least: float) -> tuple[int, ...]:
        """The steps of which less than this share was measured, ascending; less than LEAST_APART if the rest may be copies."""
        absent: dict[int, float] = {}
        possible: dict[int, float] = {}
        for absence in self.absences:
            kind = possible if absence.is_possible else absent
            for step, sequences in absence.by_step.items():
                kind[step] = kind.get(step, 0) + sequences
        thin = []
        for step in {*absent, *possible}:
            known, gone, maybe = (of.get(step, 0) for of in (self.measured, absent, possible))
            if known + maybe < least * (known + maybe + gone) or known < min(least, LEAST_APART) * (
                known + maybe + gone
            ):
                thin.append(step)
        return tuple(sorted(thin))

    def unknown_steps(self, least: float) -> frozenset[int]:
        """The thin steps, and those with a placeholder."""
        placed = (absence.by_step for absence in self.absences if absence.placeholder)
        return frozenset(self.thin_steps(least)).union(*placed)


def coverage(offered: Offered, least: float = LEAST_SHARE) -> Coverage:
    """The coverage of a gap that was measured at all. least: the share below which it is measured in part.

    It is measured in part, too, where the missing sequences are no random part: they are of certain steps, or longer or shorter.
    """
    share, thin, unknown = offered.share, offered.thin_steps(least), offered.unknown_steps(least)
    lengths = " ".join(filter(None, (_lengths(absence, offered) for absence in offered.absences)))
    if share is None or not (share < least or unknown or lengths):
        return Coverage(Known.MEASURED, share)
    hidden = "" if share >= 1 else " A fault of the missing sequences would not be seen."
    words = f"{_percent(share)} of the offered sequences were measured: {_reasons(offered.absences)}."
    where = f" Less than {least:.0%} were measured at {steps_in_words(thin)}." if thin else ""
    remedy = max(offered.absences, key=lambda each: (each.placeholder, each.sequences)).remedy
    return Coverage(Known.PARTLY, share, f"{words}{where}{f' {lengths}' if lengths else ''}{hidden}", remedy)


def steps_in_words(steps: Sequence[int]) -> str:
    """
    >>> steps_in_words([7]), steps_in_words([7, 8, 12])
    ('step 7', '3 steps from 7 to 12')
    """
    return f"step {steps[0]}" if len(steps) == 1 else f"{len(steps):,} steps from {steps[0]} to {steps[-1]}"


def _reasons(absences: Iterable[Absence]) -> str:
    """The largest reasons, each with its number."""
    largest = sorted((absence for absence in absences if absence.sequences), key=lambda each: -each.sequences)
    told = [f"{_number(absence.sequences)} {absence.reason}" for absence in largest[:_NAMED]]
    rest = sum(absence.sequences for absence in largest[_NAMED:])
    return "; ".join([*told, f"{rest:,.0f} for other reasons"] if rest else told)


def _lengths(absence: Absence, offered: Offered) -> str:
    """A sentence, if the missing sequences are longer or shorter than the measured ones; else empty."""
    measured = sum(offered.measured.values())
    if not absence.tokens or absence.sequences < FEWEST or not measured or not offered.tokens:
        return ""
    own, usual = absence.tokens / absence.sequences, offered.tokens / measured
    if usual / LONGER < own < usual * LONGER:
        return ""
    longer = "longer" if own > usual else "shorter"
    return f"Those that were {absence.reason} are {longer}: {own:,.0f} tokens each against {usual:,.0f}."


def _number(sequences: float) -> str:
    """The number in whole sequences; tokens that are less than ten of them count as a part."""
    return f"{sequences:,.0f}" if sequences >= 10 else f"{sequences:.2g}"


def _percent(share: float) -> str:
    return f"{share:.1%}" if 0.0005 <= share < 0.9995 or share in (0, 1) else f"{share:.2g}"
