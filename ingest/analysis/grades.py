"""The grades and the verdict of a run, computed once for the command line, the pages and the report, so that they agree."""

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import polars as pl

from ratioscope.metrics.grading.finding import Finding
from ratioscope.metrics.grading.floor import FLOOR, Floors, at_lag_zero, first_steps, floors
from ratioscope.metrics.grading.run_verdict import verdict
from ratioscope.metrics.grading.severity import decided, grade_signals, with_readings
from ratioscope.metrics.grading.signals import SIGNALS

from .feature_requirements import missing_of
from .no_gap import why_no_gap

if TYPE_CHECKING:
    from ..run import Run


def floors_of(run: "Run") -> Floors:
    """The floor of each gap: its value when the run began. Reads the lags of the run's first steps."""
    frame = run.metrics(by=("step",))
    steps = first_steps(frame)
    return floors(frame, at_lag_zero(run.metrics(by=("step", "lag"), steps=steps, names=FLOOR)) if steps else None)


def step_grades(run: "Run", graded: pl.DataFrame | None = None) -> pl.DataFrame:
    """One row per graded step: severity and the signal, gap, value, floor and reading that decided it.

    graded: its `signal_grades`.
    """
    return with_readings(decided(signal_grades(run) if graded is None else graded))


def signal_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per step, signal and gap for which the signal has a value. Muted signals have none."""
    return grade_signals(
        run.metrics(by=("step",)), floors_of(run) if floors is None else floors, run.rules.rules.signals
    )


def whole_run_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per signal and gap, graded on all steps together. The column `step` is 0 and means nothing."""
    whole = run.metrics(by=()).with_columns(step=pl.lit(0, pl.Int64))
    return grade_signals(whole, floors_of(run) if floors is None else floors, run.rules.rules.signals)


def verdict_of(run: "Run", graded: pl.DataFrame | None = None) -> Finding:
    """The verdict: what is wrong, since when, how sure, what to try, what was not checked. graded: `signal_grades` of the run."""
    result = verdict(signal_grades(run) if graded is None else graded, missing_checks(run), run.rules)
    why = "" if result.signal else why_no_gap(run)
    return replace(result, evidence=f"{why[0].upper()}{why[1:]}") if why else result


def missing_checks(run: "Run") -> dict[str, str]:
    """Gap, feature or signal -> why nothing of it can be graded. A scalar log lacks all signals whose metrics it has not."""
    missing = dict(missing_of(run))
    if run.no_tokens:
        logged = {name.partition("/")[2] for name in run.logged["metric"].drop_nulls().unique()}
        missing |= {s.name: f"because the log has no {s.reads}" for s in SIGNALS if s.reads not in logged}
    return missing


def plain_finding(finding: Finding) -> dict[str, Any]:
    """A Finding as values that JSON can hold."""
    return asdict(finding) | {
        "severity": finding.severity.label,
        "now": None if finding.now is None else finding.now.label,
    }
