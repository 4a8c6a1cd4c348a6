"""The first words on a run, which every face has from here: severity, why the policies are apart, since when, and how sure."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ratioscope.metrics.grading.finding import Finding, Severity

from .cause_facts import share_words
from .sentence import capital, sentence

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
    from ratioscope.ingest.analysis.known_context import KnownContext


@dataclass(frozen=True)
class Answer:
    """The answer of a diagnosis, beside the verdict."""

    sentence: str
    """The likeliest cause with its share, or that none is known."""
    headline: str
    """The likeliest cause in few words, without its share."""
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
    meanwhile: str = ""
    """The correction to keep or to use until then; empty if none was compared."""
    next: str = ""
    """The cheapest experiment for what stays open; empty if nothing does."""


def answer_of(result: "RunDiagnosis", verdict: Finding, context: "KnownContext | None" = None) -> Answer:
    """The answer of a diagnosis, with the meaning and the remedy of the likeliest cause."""
    diagnosis, experiment = result.diagnosis, result.next.do if result.next else ""
    if not diagnosis.likely:
        return Answer(
            diagnosis.answer, diagnosis.headline, diagnosis.is_healthy and verdict.is_healthy, next=experiment
        )
    first = diagnosis.likely[0]
    known = context.remedies.get(first.cause.code) if context else None
    bridge = context.bridge_for(first.cause.code) if context else None
    do = known.do if known else context.do_for(first.cause) if context else first.cause.remedy
    meanwhile = f" Meanwhile {bridge.brief}." if bridge and bridge.brief else ""
    return Answer(
        diagnosis.answer,
        diagnosis.headline,
        leads=True,
        confidence=first.confidence,
        share=share_words(first),
        proof=first.proof or sentence(first.effect),
        meaning=first.cause.meaning,
        do=do,
        trainer=(context.trainer or "") if context and known else "",
        remedy=do + meanwhile,
        meanwhile=sentence(capital(bridge.brief if bridge.helps else bridge.words)) if bridge else "",
        next=experiment,
    )


def title_of(finding: Finding, answer: Answer | None) -> str:
    """The first words after the severity: the answer of the diagnosis if it leads, else the title of the verdict.

    A run in bounds whose gap has a cause gets both, or it would seem to be out of bounds.
    """
    if answer is None or not answer.leads:
        return finding.title
    cause = answer.headline.removesuffix(".")
    in_bounds = finding.severity == Severity.HEALTHY and answer.confidence
    return f"{finding.title}, but its gap has a cause: {cause}" if in_bounds else cause


def cause_of(result: "RunDiagnosis | None") -> str:
    """The likeliest cause of a diagnosis, as a title; empty without one."""
    return "" if result is None or not result.diagnosis.likely else capital(result.diagnosis.headline.removesuffix("."))


@dataclass(frozen=True)
class FirstWords:
    """The first words on a run."""

    severity: str
    title: str
    """The answer of the diagnosis if it leads, else the title of the verdict."""
    when: str
    """Since which step it is out of bounds; empty for a healthy run."""
    confidence: str
    """Confidence in the cause if there is one, else in the verdict."""
    verdict: str
    """The title of the verdict where the answer leads, as a sentence; empty otherwise."""
    measured: str
    """The measurements, and what of the question is not known."""
    diagnosis: str
    """The answer of the diagnosis where it does not lead; empty without one."""
    meaning: str
    """The effect on training."""
    do: str
    """The change that mends it, and the correction to use until then."""
    next: str = ""
    """The cheapest experiment for what stays open, if anything has to be done."""

    @property
    def sentence(self) -> str:
        """Severity, title, since when and confidence."""
        head = ", ".join(part for part in (self.title, self.when) if part)
        return f"{self.severity}: {head} ({self.confidence} confidence)."

    @property
    def brief(self) -> str:
        """The sentence and what was measured."""
        return " ".join((self.sentence, *self.below))

    @property
    def below(self) -> tuple[str, ...]:
        """The paragraphs that follow the sentence."""
        experiment = f"Next: {self.next}" if self.next else ""
        return tuple(part for part in (f"{self.verdict} {self.measured}".strip(), self.diagnosis, experiment) if part)


def first_words(finding: Finding, answer: Answer | None = None, *, links: bool = False) -> FirstWords:
    """answer: None without a diagnosis. links: links below the words tell when an episode began and ended."""
    title, leads = title_of(finding, answer), answer is not None and answer.leads
    advised = answer is not None and answer.remedy != "" and finding.severity > Severity.HEALTHY
    return FirstWords(
        finding.word,
        title,
        _when(title, finding, leads=leads, links=links),
        answer.confidence if answer and answer.confidence else finding.confidence,
        sentence(finding.title) if leads else "",
        finding.measured,
        "" if answer is None or leads else answer.sentence,
        answer.meaning if answer and advised else finding.meaning,
        answer.remedy if answer and advised else finding.remedy,
        answer.next if answer and finding.severity > Severity.HEALTHY else "",
    )


def words_of(verdict: Finding, result: "RunDiagnosis | None", context: "KnownContext | None" = None) -> FirstWords:
    """The first words on a run with this diagnosis; None if it has none."""
    return first_words(verdict, None if result is None else answer_of(result, verdict, context))


def _when(title: str, finding: Finding, *, leads: bool, links: bool) -> str:
    """The date of the verdict in words. Beside that of a cause, which may have begun at another step, they say what it is of."""
    told = finding.when == f"since step {finding.since_step}" and f" step {finding.since_step} " in f"{title} "
    if leads and (told or links and finding.until_step is not None):
        return ""  # the cause has told it, or links tell the episode
    both = leads and " step " in title and finding.when.startswith("since")
    return f"out of bounds {finding.when}" if both else finding.when
