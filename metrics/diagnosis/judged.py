"""The verdict on a run in the light of its diagnosis: no run is healthy whose gap has a cause that is known for sure."""

from dataclasses import replace

from ..grading.coverage import NOT_MEASURED
from ..grading.finding import Finding, Severity
from .diagnosis import Diagnosis

LEAST = 0.01
"""A cause with a smaller share of the gap, such as rounding to four decimals, is no reason to watch the run. A convention."""


def judged(verdict: Finding, diagnosis: Diagnosis | None) -> Finding:
    """The verdict, at least watch if a cause of the gap is known with high confidence. diagnosis: None if there is none (yet).

    A run of which nothing was measured stays one: its cause tells why.
    """
    likely = () if diagnosis is None else diagnosis.likely
    sure = [item for item in likely if item.confidence == "high" and (item.share is None or item.of_whole >= LEAST)]
    if not sure or verdict.severity > Severity.HEALTHY or verdict.coverage.word == NOT_MEASURED:
        return verdict
    cause = sure[0].cause
    return replace(
        verdict,
        severity=Severity.WATCH,
        title=f"no signal is out of its bounds, but a cause of the gap is known: {sure[0].title}",
        confidence="high",
        meaning=cause.meaning,
        remedy=cause.remedy,
        now=Severity.WATCH,
    )
