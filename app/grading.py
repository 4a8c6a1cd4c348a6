"""The grades of a run: what the command line, the pages and the report all show, so that no two of them can disagree."""

from typing import TYPE_CHECKING

import polars as pl

from ratioscope.metrics.finding import Finding
from ratioscope.metrics.floor import FLOOR, Floors, at_lag_zero, first_steps, floors
from ratioscope.metrics.severity import grade, grade_signals, verdict

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run


def floors_of(run: "Run") -> Floors:
    """What each gap was when the run began. Reads the lags of the run's first steps."""
    frame = run.metrics(by=("step",))
    steps = first_steps(frame)
    return floors(frame, at_lag_zero(run.metrics(by=("step", "lag"), steps=steps, names=FLOOR)) if steps else None)


def step_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per graded step: severity and the signal, gap, value, floor and reading that decided it."""
    return grade(run.metrics(by=("step",)), floors_of(run) if floors is None else floors)


def signal_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per step, signal and gap that could be graded."""
    return grade_signals(run.metrics(by=("step",)), floors_of(run) if floors is None else floors)


def whole_run_grades(run: "Run", floors: Floors | None = None) -> pl.DataFrame:
    """One row per signal and gap that could be graded on all steps together; their `step` says nothing."""
    whole = run.metrics(by=()).with_columns(step=pl.lit(0, pl.Int64))
    return grade_signals(whole, floors_of(run) if floors is None else floors)


def verdict_of(grades: pl.DataFrame) -> Finding:
    """What is wrong with a run of these `step_grades`, since when, how sure, and what to try."""
    return verdict(grades)
