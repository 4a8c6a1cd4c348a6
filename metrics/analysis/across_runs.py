"""Several runs as one course: at each step the mean over the runs that have it, between the smallest and the largest."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Course:
    """One run: a value per step, steps ascending and each once; NaN where not available."""

    steps: Floats
    values: Floats


@dataclass(frozen=True)
class Across:
    """Per step that any run has: mean, low and high over the runs with a value there, and how many those are."""

    steps: Floats
    mean: Floats
    low: Floats
    high: Floats
    runs: npt.NDArray[np.int64]


def across(courses: Sequence[Course]) -> Across:
    """Every run counts once at a step; an infinite value makes the mean infinite. NaN where no run has a value."""
    empty = np.zeros(0)
    steps = np.unique(np.concatenate([course.steps for course in courses] or [empty]))
    total, counts = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    low, high = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for course in courses:
        known = ~np.isnan(course.values)
        place, values = np.searchsorted(steps, course.steps[known]), course.values[known]
        total[place] += values
        counts[place] += 1
        low[place], high[place] = np.fmin(low[place], values), np.fmax(high[place], values)
    mean = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    # Rounding of the sum may carry the mean of equal values a hair beyond them.
    return Across(steps, np.clip(mean, low, high), low, high, counts)
