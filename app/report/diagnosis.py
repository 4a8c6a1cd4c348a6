"""The diagnosis in the words of the report: the answer, facts of each likely cause, what is ruled out and what stays open."""

from dataclasses import dataclass, replace
from typing import Any

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.diagnosis import RunDiagnosis, diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.known_context import KnownContext, known_context, plain_known
from ratioscope.ingest.run import Run
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.grading.finding import Finding

from ..presentation.answer import answer_of
from ..presentation.cause_facts import cause_facts, context_facts, settings_of, share_words, stays_open
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.sentence import capital
from .head import Head, head_of
from .privacy import scrubbed_text


@dataclass(frozen=True)
class LikelyCause:
    """A likely cause in words."""

    title: str
    facts: LabelledTexts
    """Parameters, proof and remedy of the cause."""
    settings: tuple[str, ...]
    """Lines of settings of the correction to use meanwhile; empty without one."""


@dataclass(frozen=True)
class Diagnosed:
    """The diagnosis of a run in words and as data."""

    answer: str
    """The diagnosis in one sentence."""
    leads: bool
    """True if the answer heads the report, above the title of the verdict."""
    causes: tuple[LikelyCause, ...]
    facts: LabelledTexts
    """The rest of the gap, what stays open, and what was read; or why there is no diagnosis."""
    excluded: LabelledTexts
    """Title of each cause that is ruled out, and why."""
    plain: dict[str, Any] | None
    """The diagnosis as values that JSON can hold; None without one."""
    head: Head
    """The first half page."""
    verdict: Finding
    """The verdict in the light of the diagnosis."""


def diagnosed(run: Run, verdict: Finding, baseline: LabelledTexts = ()) -> Diagnosed:
    """The diagnosis of the run, without secrets and home folders. verdict: of the run. baseline: facts on a known-good run."""
    try:
        result = diagnosis_of(run)
    except RatioscopeError as error:
        why = scrubbed_text(f"not available, because {error}")
        head = _scrubbed_head(head_of(verdict, why, baseline))
        return Diagnosed("", False, (), (("diagnosis", why),), (), None, head, verdict)
    verdict = judged(verdict, result.diagnosis)
    context = known_context(run, result, verdict)
    answer = answer_of(result, verdict)
    return Diagnosed(
        scrubbed_text(answer.sentence),
        answer.leads,
        _causes(result, context),
        _scrubbed_pairs(_facts(result, context)),
        _scrubbed_pairs([(item.cause.title, item.because) for item in result.diagnosis.excluded]),
        _scrubbed(plain_diagnosis(result) | plain_known(context)),
        _scrubbed_head(head_of(verdict, (result.diagnosis, result.gap, answer, context), baseline)),
        verdict,
    )


def _causes(result: RunDiagnosis, context: KnownContext) -> tuple[LikelyCause, ...]:
    return tuple(
        LikelyCause(
            scrubbed_text(f"{place}. {capital(item.title)}"),
            _scrubbed_pairs([("share", share_words(item)), *cause_facts(item, context)]),
            tuple(settings_of(item.cause.code, context).splitlines()),
        )
        for place, item in enumerate(result.diagnosis.likely, start=1)
    )


def _facts(result: RunDiagnosis, context: KnownContext) -> list[tuple[str, str]]:
    rows = [
        ("rest of the gap", result.diagnosis.rest_in_words),
        ("the record cannot tell", stays_open(result.diagnosis)),
        *context_facts(context),
        ("diagnosed from", result.read.removeprefix("Read: ")),
    ]
    return [(name, text) for name, text in rows if text]


def _scrubbed_head(head: Head) -> Head:
    return replace(head, title=scrubbed_text(head.title), facts=_scrubbed_pairs(list(head.facts)))


def _scrubbed_pairs(pairs: list[tuple[str, str]]) -> LabelledTexts:
    return tuple((name, scrubbed_text(text)) for name, text in pairs)


def _scrubbed(value: Any) -> Any:
    """The value with every text in it scrubbed. Any: the values of JSON."""
    if isinstance(value, str):
        return scrubbed_text(value)
    if isinstance(value, dict):
        return {name: _scrubbed(part) for name, part in value.items()}
    return [_scrubbed(part) for part in value] if isinstance(value, list | tuple) else value
