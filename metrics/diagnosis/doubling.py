"""Doubling: the number of steps in which a growing gap doubles, where an exponential fits the newest part of its history."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats

from .changes import changes
from .growth_laws import CLEAR
from .history import LEAST_FACTOR, History, known_steps
from .step_noise import least_errors, weights_of

LEAST_FITTED = 8
"""The least number of steps that an exponential is fitted to. Convention."""

BENT = 12.0
"""A cubic whose cost is smaller by this shows a bend: by chance in 1 of 400 exponentials (chi-squared, 2 degrees of freedom)."""


@dataclass(frozen=True)
class Doubling:
    """An exponential that fits the level of a gap up to its newest step."""

    first: int
    """The first step that it fits."""
    last: int
    """The newest step."""
    steps: float
    """Steps in which the level doubles."""
    error: float
    """Standard error of `steps`."""


def doubling(history: History) -> Doubling | None:
    """The exponential growth that goes on at the end of this history; None if none fits.

    The longest part is taken that begins at the first step or at a change, and ends with the newest step. Its growth has to be
    beyond chance, and bends, of a cubic, have to explain no more than
    chance does. A jump has bends.
    """
    known = known_steps(history)
    courses = changes(known)
    if any(each.kind == "sawtooth" for each in courses):
        return None
    begins = [0, *(int(np.searchsorted(known.steps, each.onset)) for each in courses)]
    fits = (_fit(known.part(slice(at, None))) for at in begins if len(known.steps) - at >= LEAST_FITTED)
    return next((fit for fit in fits if fit is not None), None)


def _fit(part: History) -> Doubling | None:
    y, error = np.log(part.level), least_errors(part.error, part.tokens)
    weights = weights_of(y, error)
    span = float(part.steps[-1] - part.steps[0])
    x = (part.steps - part.steps[0]) / span
    straight, bent = (np.vander(x, columns, increasing=True) for columns in (2, 4))
    (_, slope), cost = _least_squares(straight, y, weights)
    uncertain = float(np.sqrt(np.linalg.inv((straight * weights[:, None]).T @ straight)[1, 1]))
    if slope < max(CLEAR * uncertain, np.log(LEAST_FACTOR)) or cost - _least_squares(bent, y, weights)[1] > BENT:
        return None
    steps = span * float(np.log(2)) / float(slope)
    return Doubling(int(part.steps[0]), int(part.steps[-1]), steps, steps * uncertain / float(slope))


def _least_squares(columns: Floats, y: Floats, weights: Floats) -> tuple[Floats, float]:
    """The coefficients, and the weighted squares that are left."""
    root = np.sqrt(weights)
    coefficients = np.linalg.lstsq(columns * root[:, None], y * root, rcond=None)[0]
    return np.asarray(coefficients, np.float64), float((weights * (y - columns @ coefficients) ** 2).sum())
