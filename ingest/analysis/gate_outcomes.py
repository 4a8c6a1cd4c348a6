"""The outcome of a gate on a run: each demand passed, failed, or could not be decided, with the numbers."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import polars as pl

from ratioscope.errors import SourceError
from ratioscope.metrics.diagnosis.diagnosis import Likely
from ratioscope.metrics.digits import digits, whole_percent
from ratioscope.metrics.grading.gate import ANY, Bound, Gate

from ..run import Run
from .diagnosis import RunDiagnosis, diagnosis_of
from .exactness import exactness_of
from .judged_verdict import judged_verdict

DemandState = Literal["passed", "failed", "unmeasured", "undecided"]
NOT_LIKELY = "not likely"
EXACT = "every token equal to the last bit"


@dataclass(frozen=True)
class DemandOutcome:
    """The outcome of one demand."""

    name: str
    """The metric, the cause, "any other cause" or "verdict"."""
    state: DemandState
    wanted: str
    """The demand in words."""
    found: str
    """The measurement in words, or the reason why there is none."""


def outcomes(run: Run, gate: Gate) -> tuple[DemandOutcome, ...]:
    """The outcome of every demand: the verdict, then the bounds, then the causes."""
    bounds = (_of_bound(run, bound) for bound in gate.bounds)
    return (*_of_verdict(run, gate), *_of_exactness(run, gate), *bounds, *_of_causes(run, gate))


def _of_exactness(run: Run, gate: Gate) -> Iterator[DemandOutcome]:
    """Passed only if the bits of every token are known to be equal: too few digits or no token rows fail, too."""
    if not gate.exact:
        return
    try:
        exactness = exactness_of(run)
    except SourceError as error:
        yield DemandOutcome("exact", "failed", EXACT, f"not available, because {error}")
    else:
        yield DemandOutcome(
            f"exact {exactness.gap}", "passed" if exactness.is_certified else "failed", EXACT, exactness.words
        )


def _of_verdict(run: Run, gate: Gate) -> Iterator[DemandOutcome]:
    """Passed only if everything was measured. A cause with high confidence makes the verdict watch, as on every page."""
    if gate.verdict is None:
        return
    verdict = judged_verdict(run, least_share=gate.measured)
    state: DemandState = "passed" if verdict.coverage.is_measured else "unmeasured"
    if verdict.severity >= gate.verdict:
        state = "failed"
    yield DemandOutcome(
        "verdict", state, f"better than {gate.verdict.label}, all measured", verdict.sentence.rstrip(".")
    )


def _of_bound(run: Run, bound: Bound) -> DemandOutcome:
    rows = _rows(run, bound)
    known = [row for row in rows if row[bound.column] is not None]
    lacking = len(rows) - len(known)
    if lacking or not known:
        return _absent(run, bound, lacking if known else 0, len(rows))
    errors = f"{bound.column}_se"
    excesses = [bound.excess(row[bound.column], row.get(errors)) for row in known]
    beyond = sum(excess > 0 for excess in excesses)
    worst = known[max(range(len(known)), key=excesses.__getitem__)]
    return DemandOutcome(
        bound.column, "failed" if beyond else "passed", bound.wanted, _found(bound, worst, beyond, len(known))
    )


def _rows(run: Run, bound: Bound) -> list[dict[str, Any]]:
    """The rows to be tested: one of all steps together, or one per step. A row has the metric's column."""
    steps = run.steps if bound.last is None else run.steps[-bound.last :]
    if not steps:
        return []
    chosen = None if bound.last is None else range(steps[0], steps[-1] + 1)
    frame = run.metrics(by=("step",) if bound.each else (), steps=chosen, names=(bound.metric.name,))
    if bound.column not in frame.columns:
        frame = frame.with_columns(pl.lit(None, pl.Float64).alias(bound.column))
    return frame.to_dicts()


def _absent(run: Run, bound: Bound, lacking: int, steps: int) -> DemandOutcome:
    """The outcome without a value. lacking: the number of steps without one, if others have one."""
    reason = run.unavailable.get(bound.column, f"because {bound.metric.absent}")
    where = f" at {lacking} of {steps} steps" if lacking else ""
    words = f"not available{where}, {reason}"
    return DemandOutcome(bound.column, "undecided" if bound.optional else "failed", bound.wanted, words)


def _found(bound: Bound, row: Mapping[str, Any], beyond: int, steps: int) -> str:
    value, error = row[bound.column], row.get(f"{bound.column}_se")
    words = digits(value) + ("" if error is None else f" ± {digits(error, 2)}")
    if not bound.each:
        return words
    many = f"; {beyond} of {steps} steps are beyond the bound" if beyond else f", the worst of {steps} steps"
    return f"{words} at step {row['step']}{many}"


def _of_causes(run: Run, gate: Gate) -> Iterator[DemandOutcome]:
    if gate.causes is None:
        return
    forbidden = [code for code, answer in gate.causes.items() if answer == "fail"]
    try:
        result = diagnosis_of(run) if forbidden else None
    except SourceError as error:
        yield from (DemandOutcome(_named(code), "failed", NOT_LIKELY, f"no diagnosis: {error}") for code in forbidden)
        return
    if result is not None:
        yield from (_of_cause(result, code, gate.causes) for code in forbidden)


def _of_cause(result: RunDiagnosis, code: str, answers: Mapping[str, str]) -> DemandOutcome:
    diagnosis = result.diagnosis
    likely = [
        item for item in diagnosis.likely if item.cause.code == code or (code == ANY and item.cause.code not in answers)
    ]
    if likely:
        return DemandOutcome(_named(code), "failed", NOT_LIKELY, "; ".join(map(_likely, likely)))
    muted = [(item, reason) for item, reason in diagnosis.muted if item.cause.code == code]
    if muted:
        return DemandOutcome(
            code, "undecided", NOT_LIKELY, "; ".join(f"muted, {why}: {_likely(item)}" for item, why in muted)
        )
    for open_cause in diagnosis.cannot_tell:
        if open_cause.cause.code == code:
            return DemandOutcome(code, "undecided", NOT_LIKELY, f"the record cannot tell: {result.why(open_cause)}")
    excluded = next((item.because for item in diagnosis.excluded if item.cause.code == code), "none is likely")
    return DemandOutcome(_named(code), "passed", NOT_LIKELY, excluded)


def _likely(item: Likely) -> str:
    share = f", explains {whole_percent(item.of_whole)} of the gap" if item.share else ""
    return f"{item.cause.code}: {item.title} ({item.confidence} confidence){share}"


def _named(code: str) -> str:
    return "any other cause" if code == ANY else code
