"""The head of a run: the answer for a reader without time, in the same words in HTML, Markdown and JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from ratioscope.ingest.analysis.gap_history import gap_size
from ratioscope.ingest.analysis.known_context import KnownContext
from ratioscope.metrics.diagnosis.diagnosis import Likely
from ratioscope.metrics.grading.finding import LABELS, Finding, Severity

from ..presentation.answer import Answer, title_of
from ..presentation.cause_facts import cause_facts
from ..presentation.digits import count, digits
from ..presentation.gap_words import gap_words
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.run_state import ALARMS, lasting_words
from ..presentation.sentence import capital, sentence
from ..presentation.size_words import NAME, size_words
from ..referee.floor_of_run import against_floor
from .answered import Answered
from .baseline import PINNED_RUN, compared_with
from .scope import Scope
from .verdict import COMPUTED, answer_to

CHECKPOINT = "(?i)checkpoint"
"""Pattern of the name of an event that says that the weights were saved."""


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


def head_of(scope: Scope, known: Answered | None) -> Head:
    """known: the end of the diagnosis; None while it is being made."""
    view, verdict = scope.view, scope.view.judged_verdict()
    rows = [("state", lasting_words(view.run, view.state))] if view.state.life in ALARMS else []
    if scope.floor is not None:
        rows += [("baseline", view.of(against_floor, scope.floor, verdict.gap or ""))]
    if scope.good is not None:
        rows += view.of(compared_with, scope.good).head
    rows += [(NAME, said)] if (said := size_of(scope)) else []
    answer = answer_to(verdict, known)
    if known is None or known.result is None or known.context is None or answer is None:
        rows += _verdict_facts(verdict, _cost(scope, fixed=False))
        if verdict.signal:  # a run without a gap gives the same reason already
            rows += [("diagnosis", COMPUTED if known is None else f"not available, because {known.reason}")]
        return Head(verdict.word, title_of(verdict, None), rows, None)
    diagnosis, context = known.result.diagnosis, known.context
    cost, excluded = _cost(scope, fixed=bool(known.result.record.fixed_weights)), len(diagnosis.excluded)
    likely = diagnosis.likely[0] if diagnosis.likely else None
    rows += [
        *_cause_facts(likely, answer, verdict, context, cost),
        ("noise floor", _floor(context)),
        ("ruled out", count(excluded, "other cause") if excluded else ""),
    ]
    share = None if likely is None or likely.share is None else likely.of_whole
    return Head(verdict.word, title_of(verdict, answer), [(name, text) for name, text in rows if text], share)


def size_of(scope: Scope) -> str:
    """The size of the scope's gap over all of the run, in words; empty without one."""
    return size_words(scope.view.of(gap_size, scope.gap), scope.floor) if scope.gap else ""


def _cost(scope: Scope, *, fixed: bool) -> str:
    """The steps out of bounds, and what they mean for the weights; empty if none is at act. fixed: the weights never change."""
    grades = scope.view.grades()
    out = grades.filter(pl.col("severity").to_physical() > 0)["step"].to_list()
    acts = graded_counts(grades)[Severity.ACT.label]
    if not acts:
        return ""
    first = int(min(out))
    said = f"{count(len(out))} of {count(len(grades), 'step')} are out of bounds, the first is {first}; {acts} are graded act."
    if fixed:
        return said
    events = scope.view.run.events.filter(pl.col("event").str.contains(CHECKPOINT), pl.col("step") < first)
    saved = "".join(
        f" The last checkpoint on record before them is of step {at}." for at in events["step"].sort().tail(1)
    )
    return f"{said} The weights trained since then have learnt from them.{saved}"


def _verdict_facts(verdict: Finding, cost: str) -> LabelledTexts:
    rows = (
        ("when", verdict.when),
        ("confidence", verdict.confidence),
        ("measured", verdict.measured),
        ("cost", cost),
        ("do", verdict.remedy.removesuffix("Nothing.")),
    )
    return tuple((name, text) for name, text in rows if text)


def _cause_facts(
    likely: Likely | None, answer: Answer, verdict: Finding, context: KnownContext, cost: str
) -> LabelledTexts:
    if likely is None:
        said = () if answer.leads else (("diagnosis", answer.sentence),)
        return (*said, *_verdict_facts(verdict, cost))
    if verdict.severity == Severity.HEALTHY:  # a cause that does no harm asks for nothing
        return (("likely cause", f"{answer.sentence} {answer.share}"), *_verdict_facts(verdict, cost))
    return (
        ("when", verdict.when),
        ("likely cause", answer.share),
        ("proof", answer.proof),
        ("cost", cost),
        (f"do in {answer.trainer}" if answer.trainer else "do", answer.do),  # its source is told further down
        ("meanwhile", dict(cause_facts(likely, context)).get("meanwhile", "")),
        ("next", answer.next),
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


def plain_head(head: Head) -> Mapping[str, object]:
    """The head as values that JSON can hold. The key of the fact on the pinned run is that of older reports."""
    facts = {"known-good run" if name == PINNED_RUN else name: text for name, text in head.facts}
    return {"severity": head.severity, "title": head.title, "facts": facts}


def graded_counts(grades: pl.DataFrame) -> dict[str, int]:
    """Severity -> number of steps."""
    words = grades["severity"].cast(pl.String).to_list() if len(grades) else []
    return {label: words.count(label) for label in LABELS}


def run_facts(
    steps: Sequence[int], gaps: Sequence[str] | None, trainer: object, graded: Mapping[str, int]
) -> LabelledTexts:
    """gaps: None leaves their fact out. graded: severity -> number of steps."""
    return [
        ("steps", f"{count(len(steps))} ({steps[0]} to {steps[-1]})" if steps else "none"),
        *([] if gaps is None else [("gaps", ", ".join(map(gap_words, gaps)) or "none")]),
        ("trainer", str(trainer or "not recorded")),
        ("graded", ", ".join(f"{count(number)} {word}" for word, number in graded.items())),
    ]


def verdict_rows(verdict: Finding, answer: Answer | None) -> LabelledTexts:
    """The verdict without the diagnosis, whose answer may stand above it already."""
    leads = answer is not None and answer.leads
    rows = (
        ("when", verdict.when),
        ("verdict", title_of(verdict, None)) if leads else ("diagnosis", answer.sentence if answer else ""),
        ("confidence", verdict.confidence),
        ("evidence", verdict.evidence),
        ("what it means", verdict.meaning),
        ("what to try", verdict.remedy),
        ("what was checked", verdict.checked),
    )
    return [(name, text) for name, text in rows if text]
