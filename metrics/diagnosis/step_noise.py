"""Noise of a gap's level between steps: its own errors, scatter beyond them, and slow wander."""

import numpy as np

from ratioscope.arrays import Floats

TOKEN_ERROR = 2.0
"""Standard deviation of one token's K3 relative to the mean: the square root of 2 for normal noise, more for real one."""
MANY_STEPS = 32
"""Steps from which on slow wander is measured."""
MEDIAN = 0.455
"""The median of a chi-squared variable with one degree of freedom."""


def log_error(relative: Floats) -> Floats:
    """The standard error of the log of a positive mean from its relative one.

    A sum of k exponential parts has a relative error of 1 / sqrt(k), and its log the variance trigamma(k), here by its series
    (Abramowitz and Stegun 1964, 6.4.12). The delta method is the limit of many parts: if one sequence has nearly all, it allows
    the level too little.

    >>> log_error(np.array([0.01, 0.5, 1.0])).round(2).tolist()
    [0.01, 0.53, 1.29]
    """
    square = relative**2
    return np.asarray(np.sqrt(square + square**2 / 2 + square**3 / 6))


def least_errors(error: Floats, tokens: Floats) -> Floats:
    """Standard errors of log levels. Few sequences understate their own: K3 of normal noise has at least TOKEN_ERROR."""
    return np.asarray(np.maximum(error, log_error(TOKEN_ERROR / np.sqrt(np.maximum(tokens, 1.0)))))


def weights_of(y: Floats, error: Floats) -> Floats:
    """Inverse variances of log levels, as independent steps of equal information on a lasting level would have.

    y, error: log levels and their standard errors, shape (steps,).
    """
    # Variance of the level between neighbouring steps beyond its errors. It is the smaller one of the medians of squared
    # first and second differences: a trend inflates the first. A second difference has six times the variance of one step.
    first = float(np.median(np.diff(y) ** 2)) / (2 * MEDIAN)
    second = float(np.median(np.diff(y, 2) ** 2)) / (6 * MEDIAN)
    weights: Floats = 1 / (error**2 + max(min(first, second) - float(np.median(error**2)), 0.0))
    return np.asarray(weights / _wander(y, weights))


def _wander(y: Floats, weights: Floats) -> float:
    """Variance of the mean of neighbouring steps, divided by that of independent steps; at least 1.

    Means of blocks differ more than independent steps allow if levels wander slowly. Medians and second differences are taken
    as in `_scatter`, so that neither a jump nor a trend counts as wander. About 2 sqrt(steps) blocks are compared.
    """
    if len(y) < MANY_STEPS:
        return 1.0
    size = max(int(np.sqrt(len(y)) / 2), 2)
    starts = np.arange(0, len(y) - size + 1, size)
    total = np.add.reduceat(weights, starts)
    means, variance = np.add.reduceat(weights * y, starts) / total, 1 / total
    first = np.diff(means) ** 2 / (variance[1:] + variance[:-1])
    second = np.diff(means, 2) ** 2 / (variance[2:] + 4 * variance[1:-1] + variance[:-2])
    return max(1.0, min(float(np.median(first)), float(np.median(second))) / MEDIAN)
