"""Diagnosis: causes of a gap that are likely, excluded, or cannot be told, and what is left unexplained."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..digits import whole_percent
from ..grading.finding import Confidence
from .cause import Cause, Parameter
from .causes.numerics import HEALTHY, LARGE, Noise, is_harmless
from .on_record import Side
from .share import Share

EQUAL = "Both sides are equal to the last bit"
PROVED = "proved equal, because by the record they were computed apart."
NOT_MEASURED = "not measured. Is one a copy of the other, or is the stack aligned?"
REFEREE = (
    "A third reading tells: log current_logprobs of the trainer's own forward pass, or score the tokens with "
    "`ratioscope rescore`. Collector(computed_apart=True) records that each side has a computation of its own."
)
"""The check that tells a copy from two computations that agree."""
HEADLINE = 20
"""Most words of a headline where something shorter is as true."""
SAME = 1e-9
"""Two shares that differ by less are one."""


@dataclass(frozen=True)
class Rival:
    """Another cause that the record does not tell apart from a likely one: the two are named as one set."""

    cause: Cause
    of_whole: float | None
    """Share of the whole gap that it would explain, 0 to 1; None if that cannot be computed."""
    check: str
    """The check that tells the two apart, in one sentence."""

    @property
    def words(self) -> str:
        """Its title, with its share."""
        return self.cause.title if self.of_whole is None else f"{self.cause.title} ({whole_percent(self.of_whole)})"


@dataclass(frozen=True)
class Likely:
    """A cause whose signature is in the record."""

    cause: Cause
    effect: str
    """The measured effect in words."""
    parameters: Mapping[str, Parameter]
    """Name -> estimated parameter of the fault."""
    share: Share | None
    """The share of the gap that was left when its turn came; None if the fault leaves no trace in the gap."""
    of_whole: float
    """Share of the whole gap that it explains, 0 to 1."""
    confidence: Confidence
    where: str = ""
    """The tokens that have the fault, in the words of the cause that found them; empty if it is all of them."""
    rivals: tuple[Rival, ...] = ()
    """The causes that explain as much of the same evidence. With this one they are a set that holds the cause."""
    doubts: tuple[str, ...] = ()
    """Reasons why the confidence is lower than the ground of the cause gives, in words."""
    error: float = 0.0
    """Standard error of `of_whole`; infinite if it cannot be told."""
    side: Side | None = None
    """The side at fault; None if no fact on record decides it."""
    fact: str = ""
    """The fact that shows the cause by itself, in words: a digest, or a referee; empty if its signature alone does."""
    follows: str = ""
    """The title of the cause that brings this one with it; empty for a cause of its own."""
    proved: str = ""
    """The finding of a third reading that shows it, as a sentence; empty if the gap shows it."""
    among: str = ""
    """The steps that `of_whole` is of, in words that follow "of the gap"; empty if it is of all that were asked about."""

    @property
    def instead(self) -> tuple[str, ...]:
        """Codes of the rivals."""
        return tuple(rival.cause.code for rival in self.rivals)

    @property
    def title(self) -> str:
        """The title of the cause with the estimated parameters."""
        estimate = self.fact or (self.cause.estimate.format(**self.parameters) if self.parameters else "")
        named = self.cause.title_at(self.side)
        title = f"{named}: {estimate}" if estimate else named
        return f"{title}, {self.where}" if self.where else title

    @property
    def weight(self) -> str:
        """Its share of the gap in words."""
        if self.follows:
            return f"follows from: {self.follows}"
        if self.cause.kind == "nothing":
            return "its share of the gap cannot be computed"
        return self.explains(whole_percent(self.of_whole)) if self.share else "no trace in the gap"

    def explains(self, share: str) -> str:
        """The statement that it explains so much, with the steps that this is of."""
        return f"explains {share} of the gap{self.among}"

    @property
    def place(self) -> str:
        """The tokens that the cause found, in words; empty if it says why they are bad, too."""
        return self.cause.localises.format(**self.parameters)

    @property
    def proof(self) -> str:
        """The gap before and after the undoing, in one sentence: at how few steps, and which part of the gap."""
        if self.share is None or self.proved:
            return self.proved
        error = f" ± {self.share.before_error:.2g}" if self.share.before_error else ""
        sample = " of the sampled tokens" if self.share.before_error else ""
        before, after = f"{self.share.before:.3g}{error}", f"{self.share.after:.3g}"
        own, steps = whole_percent(self.share.share), len(self.share.over_steps)
        where = f"{at_read(steps).capitalize()}, the" if steps > 1 else "The"
        is_whole = abs(self.share.share - self.of_whole) < SAME
        gap = "gap" if is_whole else "gap of these tokens" if self.where else "rest of the gap"
        recorded = "" if gap == "rest of the gap" else " as recorded"
        whole = whole_percent(self.of_whole)
        explains = own if own == whole else f"{own} of it, and {whole} of the whole gap"
        levels = f"{before} nats/token{recorded} and {after} {self.cause.undoing}"
        return f"{where} {gap}{sample} is {levels}: this explains {explains}."


@dataclass(frozen=True)
class Excluded:
    """A cause whose signature would have been seen and is not there."""

    cause: Cause
    effect: str
    """The measured effect in words."""
    would_show: str
    """The smallest effect that would have been seen, in words; empty if the effect itself says it."""

    @property
    def because(self) -> str:
        """The measured effect, and the one that would have been seen, in words."""
        return "; ".join(part for part in (self.effect, self.would_show) if part)


@dataclass(frozen=True)
class CannotTell:
    """A cause that the record can neither show nor exclude."""

    cause: Cause
    because: str
    """The reason: a column that is missing, or too little evidence."""
    missing: tuple[str, ...] = ()
    """Facts that are not on record."""


@dataclass(frozen=True)
class Diagnosis:
    """The answer to "why are the two policies apart?"."""

    likely: tuple[Likely, ...]
    """Causes in the order in which they were undone: the one that explains most comes first."""
    excluded: tuple[Excluded, ...]
    cannot_tell: tuple[CannotTell, ...]
    gap: float
    """Mean clipped K3 of the evidence as recorded, nats/token; that of `metrics` over all steps once the run has said it, see
    `stated`."""
    rest: float
    """Mean clipped K3 after all likely causes are undone, nats/token; NaN if no token is left."""
    noise: Noise | None
    """Size and shape of the rest; None if no token is left."""
    rest_is_noise: bool
    """True if the rest is as small and as regular as rounding is."""
    tokens: int
    sequences: int
    is_equal: bool = False
    """True if the two sides are equal to the last bit at every token."""
    computed_apart: bool = False
    """True if by the record each side comes from a computation of its own."""
    course: tuple[str, ...] = ()
    """The course of the rest over the steps in words, if it has one: rounding has one level."""
    told_first: str = ""
    """Sentences on copies that come before the answer; empty if there is nothing to tell."""
    over: str = ""
    """The steps that `gap` is of, in words that follow the unit; empty until the run has said them."""
    among: str = ""
    """The steps that everything else is of, as in `Likely.among`."""
    muted: tuple[tuple[Likely, str], ...] = ()
    """(likely cause, reason) of each cause that the rules of the run mute; none of them is in `likely`."""

    def muting(self, reasons: Mapping[str, str]) -> "Diagnosis":
        """The diagnosis with likely causes set apart. reasons: code of a muted cause -> why."""
        muted = tuple((item, reasons[item.cause.code]) for item in self.likely if item.cause.code in reasons)
        return replace(self, likely=tuple(i for i in self.likely if i.cause.code not in reasons), muted=muted)

    def stated(self, gap: float, read: float, *, over: str = "", among: str = "") -> "Diagnosis":
        """The diagnosis with the K3 that `metrics` has; NaN if that is not known.

        gap: over all steps. read: over all tokens of the steps that were read, of which the evidence may hold a sample.
        """
        likely = tuple(replace(item, among=among) for item in self.likely)
        muted = tuple((replace(item, among=among), why) for item, why in self.muted)
        own = replace(self, likely=likely, muted=muted, over=over, among=among)
        if not (gap >= 0 and read >= 0):
            return own
        return replace(own, gap=gap, rest=read if not self.found and self.rest == self.gap else self.rest)

    @property
    def found(self) -> tuple[Likely, ...]:
        """The likely causes, muted ones too."""
        return (*self.likely, *(item for item, _ in self.muted))

    @property
    def explained(self) -> float:
        """Share of the gap that the likely causes explain, muted ones too, 0 to 1."""
        return min(1.0, sum(item.of_whole for item in self.found))

    @property
    def unexplained(self) -> float:
        """Share of the gap that neither a likely cause nor rounding noise explains."""
        return 0.0 if self.rest_is_noise else 1 - self.explained

    @property
    def rest_in_words(self) -> str:
        """The rest of the gap when the likely causes are undone, in one sentence."""
        if self.noise is None and not self.found:
            return "So few tokens can neither show nor exclude a cause."
        if self.noise is None:
            return "No token is left that none of these causes touches, so nothing can be said of the rest."
        if self.is_equal:
            return self._equal
        size = f"K3 {self.rest:.3g} nats/token{self.among}"
        left = "The gap" if not self.found else "The rest"
        if self.rest_is_noise:
            both = f"{self.noise.negative:.0%} of the log-ratios are negative"
            tails = f"no heavy tails{self._but_for}, no pattern"
            how = (
                "as regular as rounding is, but larger than 16 bits make"
                if self._is_large
                else "as small and as regular as rounding is"
            )
            return f"{left} is {how}: {size}, {both}, {tails}."
        return f"{left} is {size}{self._unlike_rounding}, and no known cause explains it."

    @property
    def is_healthy(self) -> bool:
        """True if no cause is likely and the gap is rounding noise, or is proved to be 0."""
        if self.found or self.is_copy or self.noise is None:
            return False
        return self.rest_is_noise and self.rest < HEALTHY or is_harmless(self.rest, self.noise)

    @property
    def is_copy(self) -> bool:
        """True if both sides are equal to the last bit and may be one computation, told twice: nothing is measured."""
        return self.is_equal and not self.computed_apart

    @property
    def answer(self) -> str:
        """The likeliest cause with its share, or that the gap is noise, or that no known cause explains it; and muted causes."""
        muted = "; ".join(f"{item.title} ({item.weight})" for item, _ in self.muted)
        return " ".join(part for part in (self.told_first, self._unmuted, f"Muted: {muted}." if muted else "") if part)

    @property
    def headline(self) -> str:
        """The answer without shares where a cause is likely; in few words where it is long: other causes are counted."""
        if not self.likely or self.muted or self.is_copy or self.told_first:
            return self.answer
        causes = self._own_causes
        rest = 0.0 if causes[0].cause.partial else self._without_cause
        named = (_named(causes, rest, titles) for titles in (_titles, _short_titles, _bare_titles))
        few = _counted(causes[0], len(causes) - 1, rest)
        return next((words for words in named if len(words.split()) <= HEADLINE), few)

    @property
    def _own_causes(self) -> list[Likely]:
        """The likely causes that no other one brings with it, and that are not in the set of the first."""
        alike = self.likely[0].instead if self.likely else ()
        return [item for item in self.likely if not item.follows and item.cause.code not in alike]

    @property
    def _without_cause(self) -> float:
        """The unexplained share of a gap with likely causes; 0 where a gap of missing numbers has none."""
        return 0.0 if self.noise is None and self.likely[0].cause.kind == "nothing" else self.unexplained

    @property
    def _size(self) -> str:
        return f"{self.gap:.3g} nats/token{self.over}"

    @property
    def _but_for(self) -> str:
        """The outlying tokens in words; empty if there are none."""
        count = self.noise.outlying if self.noise else 0
        return f" but for {count} outlying token{'' if count == 1 else 's'}" if count else ""

    @property
    def _is_large(self) -> bool:
        """True if rounding in 16 bits makes no such rest in a dense model."""
        return self.rest - (self.noise.of_outlying if self.noise else 0.0) > LARGE

    @property
    def _unlike_rounding(self) -> str:
        """Traits of the rest that rounding does not have, to follow its size; empty if it is only too large."""
        found = (*(self.noise.irregular if self.noise else ()), *self.course)
        return f", {'; '.join(found)}" if found else ""

    @property
    def _without_outlying(self) -> str:
        if not self.noise or not self.noise.outlying:
            return ""
        them = "it" if self.noise.outlying == 1 else "them"
        read = f", {self.rest:.3g}{self.among}" if self.among else ""
        return f"{read} with {them} and {self.rest - self.noise.of_outlying:.3g} without {them}"

    @property
    def _equal(self) -> str:
        """The statement that both sides are equal, and what it is worth."""
        left = "the tokens that are left" if self.found else f"{self.tokens:,} tokens"
        return f"{EQUAL} at all {left}: {PROVED if self.computed_apart else NOT_MEASURED}"

    @property
    def _unmuted(self) -> str:
        if self.muted and not self.likely:
            return f"Every likely cause of the gap of {self._size} is muted."
        if self.likely:
            named = _named(self._own_causes, self._without_cause, _weighed_titles)
            return named + (f" {self._equal}" if self.is_copy else "")
        if self.noise is None:
            tokens = f"{self.tokens} token{'' if self.tokens == 1 else 's'}"
            return f"The record cannot tell why the policies are apart: {tokens} can be read, which is too few."
        if self.is_equal:
            return f"{self._equal} {REFEREE}" if self.is_copy else self._equal
        if self.rest_is_noise:
            size = f"K3 is {self._size}{self._without_outlying}"
            if self._is_large:
                return f"The gap may be rounding of 8 bits or of experts, or slightly different weights{self._but_for}: {size}."
            return f"The gap is rounding noise{self._but_for}: {size}; no known cause shows."
        small = "small, but " if self.noise and is_harmless(self.rest, self.noise) else ""
        own = (
            f" It is {small}not as regular as rounding is: {self._unlike_rounding[2:]}."
            if self._unlike_rounding
            else ""
        )
        return f"No known cause explains the gap of {self._size}.{own}"


def _named(likely: Sequence[Likely], unexplained: float, titles: Callable[[Likely], Sequence[str]]) -> str:
    """The likely causes, each beside its rivals, and what none of them explains. titles: of a cause and of its rivals."""
    which = (": the record does not tell which" if item.rivals else "" for item in likely)
    named = "; ".join(f"{', or '.join(titles(item))}{tail}" for item, tail in zip(likely, which, strict=True))
    return _with_rest(named, unexplained, likely[0].cause.partial)


def _counted(first: Likely, more: int, unexplained: float) -> str:
    """The first cause. Its rivals and the other causes are counted."""
    rivals = f", or {_others(len(first.rivals))} as likely" if first.rivals else ""
    beside = f"; {_others(more)} beside it" if more else ""
    return _with_rest(f"{first.cause.title_at(first.side)}{rivals}{beside}", unexplained)


def _others(count: int) -> str:
    return "another" if count == 1 else f"{count} others"


def _with_rest(named: str, unexplained: float, partial: str = "") -> str:
    """The causes as a sentence, with what they leave. partial: why they leave it, if that is known."""
    rest = f"; {partial or f'no known cause explains {whole_percent(unexplained)}'}" if unexplained >= 0.1 else ""
    return f"{named[0].upper()}{named[1:]}{rest}."


def _weighed_titles(item: Likely) -> list[str]:
    return [f"{item.title} ({item.weight})", *(rival.words for rival in item.rivals)]


def _titles(item: Likely) -> list[str]:
    return [item.title, *(rival.cause.title for rival in item.rivals)]


def _short_titles(item: Likely) -> list[str]:
    return [re.split("[;,] ", title)[0] for title in _titles(item)]


def _bare_titles(item: Likely) -> list[str]:
    return [item.cause.title_at(item.side), *(rival.cause.title for rival in item.rivals)]


def at_read(steps: int) -> str:
    """The steps whose rows were read, in the same words everywhere."""
    return f"at the {steps} steps read" if steps > 1 else "at the step read"
