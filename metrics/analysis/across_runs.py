"""A metric over several runs: at each step the mean, the smallest and the largest value of the runs that have the step."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats, Integers


@dataclass(frozen=True)
class RunSeries:
    """A metric over the steps of one run. Both fields have shape (steps,)."""

    steps: Floats
    """Steps in ascending order, each once."""
    values: Floats
    """NaN if not available."""


@dataclass(frozen=True)
class Across:
    """A metric over the steps of several runs. Every field has shape (steps,)."""

    steps: Floats
    """Every step that any of the runs has, ascending."""
    mean: Floats
    """The mean of the runs that have the step."""
    low: Floats
    """The smallest value of a run."""
    high: Floats
    """The largest value of a run."""
    runs: Integers
    """Number of runs with a value at the step."""


def across(runs: Sequence[RunSeries]) -> Across:
    """Mean, smallest and largest value of the runs at each step. Every run counts once.

    NaN if no run has a value at the step; an infinite value makes the mean infinite.
    """
    empty = np.zeros(0)
    steps = np.unique(np.concatenate([run.steps for run in runs] or [empty]))
    total, counts = np.zeros(len(steps)), np.zeros(len(steps), np.int64)
    low, high = np.full(len(steps), np.nan), np.full(len(steps), np.nan)
    for run in runs:
        available = ~np.isnan(run.values)
        place, values = np.searchsorted(steps, run.steps[available]), run.values[available]
        total[place] += values
        counts[place] += 1
        low[place], high[place] = np.fmin(low[place], values), np.fmax(high[place], values)
    mean = np.where(counts > 0, total / np.maximum(counts, 1), np.nan)
    # Rounding may move the mean of equal values slightly beyond them.
    return Across(steps, np.clip(mean, low, high), low, high, counts)
