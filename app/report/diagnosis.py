"""The diagnosis in the words of the report: the answer, facts of each likely cause, what is ruled out and what stays open."""

from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.diagnosis import RunDiagnosis, diagnosis_of, plain_diagnosis
from ratioscope.ingest.analysis.known_context import KnownContext, known_context, plain_known
from ratioscope.ingest.run import Run
from ratioscope.metrics.diagnosis.cause import Cause
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.grading.finding import Finding

from ..presentation.answer import answer_of
from ..presentation.cause_facts import cause_facts, context_facts, settings_of, share_words, stays_open
from ..presentation.labelled_texts import LabelledTexts
from ..presentation.sentence import capital
from .head import Head, head_of
from .privacy import scrubbed_text

Found = TypeVar("Found")


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
    result: RunDiagnosis | None = None
    """The diagnosis itself; None without one."""
    context: KnownContext | None = None
    """None without a diagnosis."""
    reason: str = ""
    """Reason why there is none."""


def diagnosed(run: Run, verdict: Finding, baseline: LabelledTexts = ()) -> Diagnosed:
    """The diagnosis of the run, without secrets and home folders. verdict: of the run. baseline: facts on a known-good run."""
    try:
        result = _scrubbed(diagnosis_of(run))
    except RatioscopeError as error:
        reason = scrubbed_text(str(error))
        why = f"not available, because {reason}"
        head = _scrubbed_head(head_of(verdict, why, baseline))
        return Diagnosed("", False, (), (("diagnosis", why),), (), None, head, verdict, reason=reason)
    verdict = judged(verdict, result.diagnosis)
    context = _scrubbed(known_context(run, result, verdict))
    answer = answer_of(result, verdict, context)
    return Diagnosed(
        answer.sentence,
        answer.leads,
        _causes(result, context),
        _facts(result, context),
        [(item.cause.title, item.because) for item in result.diagnosis.excluded],
        plain_diagnosis(result) | plain_known(context),
        _scrubbed_head(head_of(verdict, (result.diagnosis, result.gap, answer, context), baseline)),
        verdict,
        result,
        context,
    )


def _causes(result: RunDiagnosis, context: KnownContext) -> tuple[LikelyCause, ...]:
    return tuple(
        LikelyCause(
            f"{place}. {capital(item.title)}",
            [("share", share_words(item)), *cause_facts(item, context)],
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
    return replace(head, title=scrubbed_text(head.title), facts=_scrubbed(head.facts))


def _scrubbed(value: Found) -> Found:
    """The value with every text in it scrubbed; the same object if that changes none."""
    new: Any = value  # each kind of value is made again as what it was
    if isinstance(value, str):
        new = scrubbed_text(value)
    elif isinstance(value, dict):
        new = {name: _scrubbed(part) for name, part in value.items()}
    elif type(new) is tuple:
        new = tuple([_scrubbed(part) for part in new])
    elif isinstance(value, list):
        new = [_scrubbed(part) for part in value]
    elif is_dataclass(value) and not isinstance(value, type | Cause):  # a cause has texts of ours alone
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        changed = {name: new for name, part in parts.items() if (new := _scrubbed(part)) is not part and new != part}
        new = replace(value, **changed) if changed else value
    return cast(Found, new)
