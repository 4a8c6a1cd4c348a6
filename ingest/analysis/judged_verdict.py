"""The verdict on a run in the light of its diagnosis, for every face that has not made the diagnosis itself."""

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.diagnosis.judged import judged
from ratioscope.metrics.grading.coverage import NOT_MEASURED
from ratioscope.metrics.grading.finding import Finding, Severity

from .diagnosis import RunDiagnosis, diagnosis_of
from .grades import verdict_of

REST = 20.0
"""Pause before a growing run is diagnosed again, as a multiple of the time of the last diagnosis. Convention."""


@dataclass(frozen=True)
class _Diagnosed:
    result: RunDiagnosis | None
    """None if the run cannot be diagnosed."""
    ended: float
    """When it was made, in seconds of a clock that never goes back."""
    took: float
    """Seconds."""


if TYPE_CHECKING:
    import polars as pl

    from ..run import Run


_LAST: "WeakKeyDictionary[Run, _Diagnosed]" = WeakKeyDictionary()
"""Run -> its last diagnosis."""


def judged_verdict(run: "Run", graded: "pl.DataFrame | None" = None, least_share: float | None = None) -> Finding:
    """`verdict_of`, at least watch if a cause is known with high confidence. A run is diagnosed only if it would be green."""
    verdict = verdict_of(run, graded, least_share)
    if verdict.severity > Severity.HEALTHY or verdict.coverage.word == NOT_MEASURED:
        return verdict
    known = run.once(lately_diagnosed)
    return judged(verdict, None if known is None else known.diagnosis)


def lately_diagnosed(run: "Run") -> RunDiagnosis | None:
    """The diagnosis; None if there can be none. For a run that grows, the last one serves until a rest is over."""
    known, began = _LAST.get(run), time.monotonic()
    if known is not None and began - known.ended < REST * known.took:
        return known.result
    try:
        result = diagnosis_of(run)
    except RatioscopeError:
        result = None
    ended = time.monotonic()
    _LAST[run] = _Diagnosed(result, ended, ended - began)
    return result
