"""The answer to "why are the policies apart?" in the words of the first line of pages and reports."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratioscope.metrics.grading.finding import Finding, Severity

from .cause_facts import share_words
from .sentence import sentence

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
    from ratioscope.ingest.analysis.known_context import KnownContext


@dataclass(frozen=True)
class Answer:
    """The answer of a diagnosis, beside the verdict."""

    sentence: str
    """The likeliest cause with its share, or that none is known."""
    leads: bool
    """True if it comes before the title of the verdict: it says more than the title, and does not contradict it."""
    confidence: str = ""
    """Confidence in the likeliest cause; empty without one."""
    share: str = ""
    """The part of the gap that it explains, with the confidence."""
    proof: str = ""
    """The gap before and after the undoing of the likeliest cause."""
    meaning: str = ""
    """The effect of the cause on training; empty without one."""
    do: str = ""
    """The change that mends the cause, in the run's trainer if that is known."""
    trainer: str = ""
    """The trainer in whose settings `do` is told; empty without one."""
    remedy: str = ""
    """`do`, and the correction to use until then."""


def answer_of(result: "RunDiagnosis", verdict: Finding, context: "KnownContext | None" = None) -> Answer:
    """The answer of a diagnosis, with the meaning and the remedy of the likeliest cause."""
    diagnosis = result.diagnosis
    if not diagnosis.likely:
        return Answer(diagnosis.answer, diagnosis.is_healthy and verdict.is_healthy)
    first = diagnosis.likely[0]
    known = context.remedies.get(first.cause.code) if context else None
    bridge = context.bridge_for(first.cause.code) if context else None
    do = known.do if known else first.cause.remedy
    meanwhile = f" Meanwhile use {bridge.best}." if bridge and bridge.best else ""
    return Answer(
        diagnosis.answer,
        leads=True,
        confidence=first.confidence,
        share=share_words(first),
        proof=first.proof or sentence(first.effect),
        meaning=first.cause.meaning,
        do=do,
        trainer=(context.trainer or "") if context and known else "",
        remedy=do + meanwhile,
    )


def title_of(finding: Finding, answer: Answer | None) -> str:
    """The first words after the severity: the answer of the diagnosis if it leads, else the title of the verdict.

    A run in bounds whose gap has a cause gets both, or it would seem to be out of bounds.
    """
    if answer is None or not answer.leads:
        return finding.title
    cause = answer.sentence.removesuffix(".")
    in_bounds = finding.severity == Severity.HEALTHY and answer.confidence
    return f"{finding.title}, but the diagnosis names a cause of its gap: {cause}" if in_bounds else cause
