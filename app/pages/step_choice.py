"""The step that a page on one step shows, and its grade."""

from collections.abc import Sequence

import polars as pl

from ratioscope.metrics.grading import episodes as course
from ratioscope.metrics.grading.severity import with_readings

from .view import View, asked_gap

AT_ONCE = 32
TOKENS_AT_ONCE = 500_000
"""Most steps and tokens that are read without a question or a job: a second's work."""


def steps_with_rows(view: View, gap: str) -> list[int]:
    """The steps whose sequences can be listed; all steps if there is none."""
    return (view.read_steps(gap) if asked_gap(gap) else view.run.steps_with_rows) or view.steps


def worst_step(view: View, steps: Sequence[int]) -> int:
    """The worst of these steps: the verdict's if it is among them, else the worst grade; the last if all are healthy."""
    peak = view.verdict().peak_step
    if peak is not None and peak not in steps:
        peak = course.worst_step(view.graded().filter(pl.col("step").is_in(list(steps))), view.rules.rules)
    return steps[-1] if peak is None else nearest(steps, peak)


def nearest(steps: Sequence[int], step: int) -> int:
    """The recorded step nearest to this one."""
    return min(steps, key=lambda recorded: (abs(recorded - step), recorded))


def severity_of(view: View, step: int) -> dict[str, object] | None:
    """The step's row of the grades; None if it could not be graded."""
    rows = view.grades().filter(pl.col("step") == step)
    return with_readings(rows).row(0, named=True) if len(rows) else None


def are_few(view: View, steps: Sequence[int]) -> bool:
    """True if the token rows of these steps are read in about a second."""
    run = view.run
    return len(steps) <= AT_ONCE and len(steps) * run.size.tokens <= TOKENS_AT_ONCE * len(run.steps)
