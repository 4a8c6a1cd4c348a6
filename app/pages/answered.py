"""The diagnosis of a run as pages show it: the causes, the context of the first one, or why there is no diagnosis."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from ratioscope.errors import RatioscopeError
from ratioscope.ingest.analysis.diagnosis import RunDiagnosis, diagnosis_of
from ratioscope.ingest.analysis.grades import verdict_of
from ratioscope.ingest.analysis.known_context import KnownContext, known_context
from ratioscope.ingest.run import Run
from ratioscope.metrics.diagnosis.judged import judged

from .worst import WorstSequence


@dataclass(frozen=True)
class Answered:
    """The end of a diagnosis."""

    revision: int
    """The revision of the run that was asked about."""
    result: RunDiagnosis | None
    """None if the run cannot be diagnosed."""
    context: KnownContext | None = None
    """The published range, remedies in the run's trainer, and the correction to use meanwhile; None without a result."""
    reason: str = ""
    last_step: int | None = None
    """The newest step on record at that time."""
    ended: float = 0.0
    """When it ended, in seconds of a clock that never goes back."""
    took: float = 0.0
    """Seconds."""
    samples: tuple[WorstSequence, ...] | None = None
    """The worst samples of the gap, which a server reads after it; None until they are read."""
    no_samples: str = ""
    """Reason why there are no samples."""


def answered(
    open_run: Callable[[], Run],
    revision: int,
    gap: str = "",
    steps: range | None = None,
    graded: pl.DataFrame | None = None,
) -> Answered:
    """The diagnosis, or the reason why there is none. gap: empty for the best one on record. steps: None for all.

    graded: `signal_grades` of the run, if they are known.
    """
    began = time.monotonic()
    result, context, reason, last = None, None, "", None
    try:
        run = open_run()
        last = max(run.steps, default=None)
        result = diagnosis_of(
            run, gap or None, None if steps is None else [step for step in run.steps if step in steps]
        )
        context = known_context(run, result, judged(verdict_of(run, graded), result.diagnosis))
    except RatioscopeError as error:
        reason = str(error)
    except Exception as error:  # the page shows the reason
        reason = f"the diagnosis failed ({type(error).__name__}: {error}); `ratioscope diagnose` shows where"
    ended = time.monotonic()
    return Answered(revision, result, context, reason, last, ended, ended - began)
