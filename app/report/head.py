"""The head of the report: the answer for a reader without time, in the same words in HTML, Markdown and JSON."""

from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.analysis.known_context import KnownContext
from ratioscope.metrics.diagnosis.diagnosis import Diagnosis, Likely
from ratioscope.metrics.grading.finding import Finding, Severity

from ..presentation.answer import Answer, title_of
from ..presentation.cause_facts import cause_facts, over_steps
from ..presentation.digits import count, digits
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.sentence import capital, sentence

RULED_OUT = 4
"""Most causes that the head names as ruled out; the report lists all."""


@dataclass(frozen=True)
class UndoingNumbers:
    """The numbers of the one picture of the head: the gap of each step before and after the undoing."""

    frame: pl.DataFrame
    """Columns step, tokens, before, after."""
    gap: str
    words: str
    """The undoing, after "the gap"."""


@dataclass(frozen=True)
class Head:
    """The first half page."""

    severity: str
    title: str
    """The answer of the diagnosis, else the title of the verdict."""
    facts: LabelledTexts
    """Label and text of each fact, in the order of reading."""
    share: float | None
    """Share of the gap that the likeliest cause explains, 0 to 1; None without one."""
    evidence: UndoingNumbers | None
    """None if nothing was undone: then the size of the gap over the steps is the picture."""


def head_of(
    verdict: Finding, diagnosed: tuple[Diagnosis, str, Answer, KnownContext] | str, baseline: LabelledTexts = ()
) -> Head:
    """diagnosed: the diagnosis with its gap, answer and context, or why there is none. baseline: facts on a known-good run."""
    severity = verdict.word
    if isinstance(diagnosed, str):
        own = (("diagnosis", diagnosed),) if verdict.signal else ()  # a run without a gap gives the same reason already
        facts = (*baseline, *_verdict_facts(verdict), *own)
        return Head(severity, verdict.title, facts, None, None)
    diagnosis, gap, answer, context = diagnosed
    likely = diagnosis.likely[0] if diagnosis.likely else None
    rows = (
        *baseline,
        *_cause_facts(likely, answer, verdict, context),
        ("noise floor", _floor(context)),
        ("ruled out", _ruled_out(diagnosis)),
    )
    title = title_of(verdict, answer)
    known = tuple((name, text) for name, text in rows if text)
    share = None if likely is None or likely.share is None else likely.of_whole
    return Head(severity, title, known, share, _evidence(likely, gap))


def _verdict_facts(verdict: Finding) -> LabelledTexts:
    rows = (
        ("when", verdict.when),
        ("confidence", verdict.confidence),
        ("measured", verdict.measured),
        ("do", verdict.remedy.removesuffix("Nothing.")),
    )
    return tuple((name, text) for name, text in rows if text)


def _cause_facts(likely: Likely | None, answer: Answer, verdict: Finding, context: KnownContext) -> LabelledTexts:
    if likely is None:
        said = () if answer.leads else (("diagnosis", answer.sentence),)
        return (*said, *_verdict_facts(verdict))
    if verdict.severity == Severity.HEALTHY:  # a cause that does no harm asks for nothing
        return (("likely cause", f"{answer.sentence} {answer.share}"), *_verdict_facts(verdict))
    return (
        ("when", verdict.when),
        ("likely cause", answer.share),
        ("proof", answer.proof),
        (f"do in {answer.trainer}" if answer.trainer else "do", answer.do),  # its source is told further down
        ("meanwhile", dict(cause_facts(likely, context)).get("meanwhile", "")),
    )


def _floor(context: KnownContext) -> str:
    """The run's own floor and the published range, if either is known."""
    floor, reference = context.reference.floor, context.reference.reference
    own = "" if floor is None else f"KL K3 {digits(floor, 3)} nats/token when the run began"
    usual = ""
    if reference is not None and reference.usual[1]:
        low, high = (digits(end, 2) for end in reference.usual)
        usual = f"usual for {reference.words}: {f'{low} to ' if reference.usual[0] else 'at most '}{high}"
    return sentence(capital("; ".join(part for part in (own, usual) if part)))


def _ruled_out(diagnosis: Diagnosis) -> str:
    titles = [item.cause.title for item in diagnosis.excluded]
    more = f"; and {count(len(titles) - RULED_OUT, 'more cause')}" if len(titles) > RULED_OUT else ""
    return sentence("; ".join(titles[:RULED_OUT]) + more) if titles else ""


def _evidence(likely: Likely | None, gap: str) -> UndoingNumbers | None:
    frame = over_steps(likely) if likely is not None else None
    return (
        None
        if likely is None or frame is None or frame.is_empty()
        else UndoingNumbers(frame, gap, likely.cause.undoing)
    )


def plain_head(head: Head) -> Mapping[str, object]:
    """The head as values that JSON can hold."""
    return {"severity": head.severity, "title": head.title, "facts": dict(head.facts)}
