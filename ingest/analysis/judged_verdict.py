"""The verdict on a run in the light of its diagnosis, for every face that has not made the diagnosis itself."""

from typing import TYPE_CHECKING

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.grading.coverage import NOT_MEASURED
from ratioscope.metrics.grading.finding import Finding, Severity

from .diagnosis import RunDiagnosis, diagnosis_of
from .grades import verdict_of

if TYPE_CHECKING:
    import polars as pl

    from ..run import Run


def judged_verdict(run: "Run", graded: "pl.DataFrame | None" = None, least_share: float | None = None) -> Finding:
    """`verdict_of`, at least watch if a cause is known with high confidence. A run is diagnosed only if it would be green."""
    verdict = verdict_of(run, graded, least_share)
    if verdict.severity > Severity.HEALTHY or verdict.coverage.word == NOT_MEASURED:
        return verdict
    known = run.once(_diagnosis)
    return judged(verdict, None if known is None else known.diagnosis)


def _diagnosis(run: "Run") -> RunDiagnosis | None:
    """None if the run cannot be diagnosed."""
    try:
        return diagnosis_of(run)
    except RatioscopeError:
        return None
