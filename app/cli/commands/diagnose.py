"""`ratioscope diagnose RUN`: why the policies are apart, how sure that is, what was ruled out, and what to do."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ratioscope.layout import REPRODUCED

from ...blocks import Block, Code, Facts, Heading, Paragraph
from ..blocks_printed import print_blocks
from ..next_steps import after_diagnose, print_next
from ..terminal import print_json, say, working
from .arguments import AsJson, BaselineName, OnlySteps, RulesFile, RunFolder, floor_named, opened, steps_of

if TYPE_CHECKING:
    from ratioscope.ingest.analysis.diagnosis import RunDiagnosis
    from ratioscope.ingest.analysis.known_context import KnownContext
    from ratioscope.ingest.run import Run
    from ratioscope.metrics.grading.finding import Finding

    from ...presentation.noise_floor import NoiseFloor

    Diagnosed = tuple[RunDiagnosis, Finding, KnownContext]


def diagnose(
    run: RunFolder,
    gap: Annotated[str | None, typer.Option(metavar="mismatch|total|drift", help="The gap to diagnose.")] = None,
    steps: OnlySteps = None,
    rules: RulesFile = None,
    baseline: BaselineName = None,
    as_json: AsJson = False,
) -> None:
    """Name the causes of the gap: likely ones with the share that each explains, and those that are ruled out or open."""
    from ratioscope.ingest.analysis.diagnosis import SAMPLED, diagnosed_gap
    from ratioscope.metrics.grading.coverage import NOT_MEASURED
    from ratioscope.metrics.grading.finding import Severity

    from ...presentation.answer import words_of
    from ...referee.floor_of_run import against_floor, pinned_floor

    wanted, floor = steps_of(steps), floor_named(baseline)
    opened_run = opened(run, rules)
    chosen = None if wanted is None else [step for step in opened_run.steps if step in wanted]
    if diagnosed_gap(opened_run, gap) not in SAMPLED:
        _say_drift(opened_run, chosen, as_json=as_json)
        return
    with working(f"diagnosing {opened_run.name}"):
        result, verdict, known = diagnosed(opened_run, gap, chosen)
    proofs = _proofs(opened_run)
    beside = against_floor(opened_run, floor, result.gap) if floor else ""
    if as_json:
        print_json(plain_diagnosed(opened_run, (result, verdict, known), beside))
        return
    words = words_of(verdict, result, known)
    say(f"{opened_run.name}: {words.brief}", verdict.word)
    is_known = verdict.coverage.word != NOT_MEASURED
    no_cause = verdict.severity > Severity.HEALTHY and not result.diagnosis.likely
    beside_now = floor or pinned_floor(opened_run, result.gap)
    told = (_size(result, known, beside_now) if is_known else "", f"Do: {words.do}" if no_cause else "", beside)
    print_blocks(Paragraph(text) for text in told if text)
    told_below = {item.proved for item in result.diagnosis.likely}
    print_blocks(Paragraph(proof, "lead", "proof:") for proof in proofs if proof not in told_below)
    if verdict.rules:
        print_blocks([Paragraph(verdict.rules, "warning")])
    print_blocks(_blocks(result, known))
    print_next(opened_run, after_diagnose(opened_run, is_bridged=known.bridge is not None and known.bridge.helps))


def diagnosed(run: "Run", gap: str | None, steps: Sequence[int] | None) -> "Diagnosed":
    """The diagnosis of a gap, the verdict that it leads to, and what is known about such gaps. Source of all that is printed."""
    from ratioscope.ingest.analysis.diagnosis import diagnosis_of
    from ratioscope.ingest.analysis.grades import verdict_of
    from ratioscope.ingest.analysis.known_context import known_context
    from ratioscope.metrics.diagnosis.judged import judged

    result = diagnosis_of(run, gap, steps)
    verdict = judged(verdict_of(run), result.diagnosis)
    return result, verdict, known_context(run, result, verdict)


def plain_diagnosed(run: "Run", found: "Diagnosed", beside: str | None = "") -> dict[str, Any]:
    """The diagnosis for JSON. beside: the gap beside the noise floor of --baseline, in words."""
    from ratioscope.ingest.analysis.diagnosis import plain_diagnosis
    from ratioscope.ingest.analysis.known_context import plain_known

    result, verdict, known = found
    head = {"name": run.name, "severity": verdict.word} | ({"baseline": beside} if beside else {})
    return head | {"proofs": _proofs(run)} | plain_diagnosis(result) | plain_known(known)


def _proofs(run: "Run") -> list[str]:
    """The notes of `rescore --try`: the newest first, each once."""
    found = run.events.filter(run.events["event"] == REPRODUCED).sort("time", descending=True)
    return list(dict.fromkeys(found["note"].to_list()))


def _size(result: "RunDiagnosis", known: "KnownContext", floor: "NoiseFloor | None") -> str:
    """The size of the gap, of which tokens, and what the run's own correction does with it, in words."""
    from ratioscope.metrics.definitions.validity import NON_FINITE
    from ratioscope.metrics.diagnosis.diagnosis import at_read

    from ...presentation.digits import digits
    from ...presentation.size_words import size_words

    whole, read = size_words(result.size, floor), at_read(len(result.steps))
    of = " of the other tokens" if any(item.cause.code == NON_FINITE.name for item in result.diagnosis.found) else ""
    part = f"K3 {digits(result.kl_k3_of_steps)} nats/token{of} {read}" if of or result.diagnosis.among else ""
    return f"{'; '.join(filter(None, (whole, part, known.correction.short)))}."


def _say_drift(run: "Run", steps: Sequence[int] | None, *, as_json: bool) -> None:
    """Prints the size of the drift, which has none of the causes of a gap."""
    from ratioscope.ingest.analysis.drift import drift_of, plain_drift

    drift = drift_of(run, steps)
    if as_json:
        print_json({"name": run.name} | plain_drift(drift))
        return
    say(f"{run.name}: {drift.words}")
    by_minibatch = "metrics RUN --gap drift --by step,minibatch", "the drift of each minibatch"
    of_total = "diagnose RUN --gap total", "the causes of the gap between rollout and current"
    print_next(run, (of_total if drift.is_total else by_minibatch,))


def _blocks(result: "RunDiagnosis", known: "KnownContext") -> Iterator[Block]:
    """Each likely cause, what is left, what bears on the gap, and the causes that are muted, open or ruled out."""
    from ...presentation.cause_facts import cause_facts, context_facts, settings_of, share_words
    from ...presentation.sentence import capital

    diagnosis = result.diagnosis
    for place, item in enumerate(diagnosis.likely, start=1):
        yield Heading(f"{place}. {capital(item.title)}")
        yield Facts([("share", share_words(item)), *cause_facts(item, known)])
        yield Code(settings_of(item.cause.code, known).splitlines())
    yield Heading("Beside the gap")
    yield Facts([("rest of the gap", diagnosis.rest_in_words), *context_facts(known)])
    for title, rows in (
        ("Muted", [(item.cause.code, f"{item.title}; {reason}") for item, reason in diagnosis.muted]),
        ("The record cannot tell", [(item.cause.code, result.why(item)) for item in diagnosis.cannot_tell]),
        ("Ruled out", [(item.cause.code, item.because) for item in diagnosis.excluded]),
    ):
        if rows:
            yield Heading(f"{title} ({len(rows)})")
            yield Facts(rows)
    yield Heading("Rows read")
    yield Paragraph(result.read, "muted")
