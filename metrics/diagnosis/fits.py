"""Regressions and means with errors that take sequences as the independent units."""

import numpy as np

from ratioscope.arrays import Floats

from .evidence import Evidence, row_sums
from .once import once

MOST = 5.0
"""A log-ratio above this counts as this in the mean weight. Clipping can only lower the mean."""


def least_squares(columns: Floats, values: Floats, evidence: Evidence) -> tuple[Floats, Floats]:
    """(coefficients, standard errors) of a linear regression; shapes (k,). columns: shape (tokens, k).

    The errors are clustered by sequence: Liang and Zeger 1986.
    """
    root = np.sqrt(evidence.weights)
    coefficients = np.linalg.lstsq(columns * root[:, None], values * root, rcond=None)[0]
    residual = values - columns @ coefficients
    scores = np.stack([row_sums(evidence, column * residual) for column in columns.T], axis=1)
    inverse = np.linalg.pinv((columns * evidence.weights[:, None]).T @ columns)
    rows = len(scores)
    covariance = inverse @ (scores.T @ scores) @ inverse * rows / max(rows - 1, 1)
    errors = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    return coefficients.astype(np.float64), errors.astype(np.float64)


def correlation(first: Floats, second: Floats, *, undefined: float = 0.0) -> float:
    """Pearson's correlation, in -1..1; `undefined` for fewer than three values, or where a side has one value only."""
    is_defined = len(first) > 2 and np.ptp(first) > 0 and np.ptp(second) > 0
    return float(np.corrcoef(first, second)[0, 1]) if is_defined else undefined


def slope(of: Floats, over: Floats) -> float:
    """Rise of the values for a rise by 1 of `over`, by least squares; 0 where `over` has one value only."""
    return float(np.polyfit(over, of, 1)[0]) if len(over) > 1 and np.ptp(over) > 0 else 0.0


@once
def mean_weight(evidence: Evidence) -> tuple[float, float]:
    """(mean importance weight, its standard error). 1 for any trainer, if the sampler's log-probs are those it sampled from."""
    return _mean(evidence, np.exp(np.minimum(evidence.log_ratio, MOST)))


@once
def surprisal_gap(evidence: Evidence) -> tuple[float, float]:
    """(mean of -later - entropy in nats, its standard error). 0 if tokens were sampled from the later policy."""
    gap = -evidence.later - evidence.facts["entropy"]
    known = np.isfinite(gap)
    if known.sum() < 2:
        return np.nan, np.inf
    # A martingale difference given the prefix: tokens are uncorrelated.
    own, weights, tokens = gap[known], evidence.weights[known], int(known.sum())
    mean = float((weights * own).sum() / weights.sum())
    squares = ((weights * (own - mean)) ** 2).sum() * tokens / (tokens - 1)
    return mean, float(np.sqrt(squares) / weights.sum())


def _mean(evidence: Evidence, values: Floats) -> tuple[float, float]:
    mean = evidence.mean(values)
    residual = row_sums(evidence, values - mean)
    rows = max(len(residual), 2)
    return mean, float(np.sqrt((residual**2).sum() * rows / (rows - 1)) / max(float(evidence.weights.sum()), 1e-300))
