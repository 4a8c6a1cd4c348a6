"""The part of a series that is the same at every step, apart from noise, with an error that allows for steps that are alike.

The mean of T values of noise has the error sd / sqrt(T) only if they are independent. Here the long-run variance is estimated
from the B slowest cosines of the series, so that the mean over its error follows Student's t of B degrees of freedom, whatever
the correlation of near steps: Lazarus, Lewis, Stock and Watson 2018, "HAR Inference: Recommendations for Practice", section 3.
"""

import math
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats

from .comparison import student_tail

LEAST_STEPS = 20
"""Fewer steps leave two degrees of freedom or less. A convention."""
CHANCE = 0.01
"""A persistent part is stated if noise would give one as large less often than this. A convention."""
BANDWIDTH = 0.41
"""B = BANDWIDTH * T^(2/3), rounded down: eq. 4 of the source."""


@dataclass(frozen=True)
class Persistence:
    """The mean of a series over the steps, each step counting once, beside the noise around it."""

    steps: int
    mean: float
    """The persistent part, per step."""
    error: float
    """Its standard error; correlation of near steps is in it."""
    freedom: int
    """Degrees of freedom of mean / error."""
    chance: float
    """Probability that noise gives a mean as far from 0."""
    share: float
    """Part of the mean square of a step that the mean makes, without what its error adds; from 0 to 1."""

    @property
    def is_persistent(self) -> bool:
        """True if the mean is beyond chance."""
        return self.chance < CHANCE

    @property
    def total(self) -> float:
        """The sum over the steps."""
        return self.steps * self.mean

    @property
    def total_error(self) -> float:
        """The standard error of the sum."""
        return self.steps * self.error


def persistence(values: Floats) -> Persistence | None:
    """values: finite, one per step, in order. None below LEAST_STEPS steps."""
    steps = len(values)
    if steps < LEAST_STEPS:
        return None
    freedom = int(BANDWIDTH * steps ** (2 / 3))
    mean = float(values.mean())
    angles = np.outer(np.arange(1, freedom + 1), np.arange(steps) + 0.5) * (math.pi / steps)
    slow = math.sqrt(2 / steps) * (np.cos(angles) @ (values - mean))
    error = math.sqrt(float((slow**2).mean()) / steps)
    square = float((values**2).mean())
    t = abs(mean) / error if error > 0 else (math.inf if mean else 0.0)
    share = 0.0 if square == 0 else min(1.0, max(0.0, (mean**2 - error**2) / square))
    return Persistence(steps, mean, error, freedom, student_tail(t, freedom), share)


def accumulated(values: Floats, found: Persistence | None) -> tuple[Floats, Floats]:
    """(sum up to each step, its standard error): noise grows with the root of the steps. NaN where no error is known."""
    unit = math.nan if found is None else found.error * math.sqrt(found.steps)
    return np.cumsum(values), unit * np.sqrt(np.arange(1.0, len(values) + 1))
