"""verl's log-ratio at two precisions, and verl's averages.

Values (means, weights) are computed in float64. Comparisons with a bound use the dtype of the log-probs, as in verl. For a token
exactly at a bound the two precisions differ, and the mask must be verl's.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Floats, Reals

SAFETY_BOUND = 20.0
"""Weights, chi-squared and divergences clamp log-ratios to +- this bound before exp; kl and k3_kl do not."""


@dataclass(frozen=True)
class LogRatio:
    """Trainer minus rollout log-prob, (rows, positions)."""

    exact: Floats
    """In float64."""
    own: Reals
    """In the dtype of the log-probs."""
    mask: Booleans
    """Valid tokens."""

    @property
    def tokens(self) -> int:
        """Valid tokens of the batch."""
        return int(self.mask.sum())


def log_ratio(train: Reals, rollout: Reals, mask: Booleans) -> LogRatio:
    """The log-ratio of two log-prob arrays of shape (rows, positions)."""
    return LogRatio(train.astype(np.float64) - rollout.astype(np.float64), train - rollout, mask)


def bounded(log_ratios: Reals) -> Reals:
    """The log-ratios clamped to +-SAFETY_BOUND; NaN stays NaN."""
    return np.asarray(np.clip(log_ratios, -SAFETY_BOUND, SAFETY_BOUND))


def exp(values: Reals) -> Reals:
    """exp in the dtype of the values, rounded once from float64.

    It equals torch's float32 exp for 99% of values; numpy's float32 exp does for 60%.
    """
    return np.asarray(np.exp(values.astype(np.float64)), values.dtype)


def any_in_row(flags: Booleans) -> Booleans:
    """Whether each row has a true position, (rows,)."""
    return np.asarray(flags.any(axis=1), np.bool_)


def row_sums(values: Reals, mask: Booleans) -> Reals:
    """Sum over each row's valid tokens, (rows,), rounded once to the dtype of the values; 0 for an empty row."""
    return np.asarray(np.where(mask, values, 0).sum(axis=1, dtype=np.float64), values.dtype)


def row_means(values: Reals, mask: Booleans) -> Reals:
    """Mean over each row's valid tokens, (rows,); 0 for an empty row. verl averages empty rows like any other."""
    return np.asarray(row_sums(values, mask) / np.maximum(mask.sum(axis=1), 1).astype(values.dtype))


def token_mean(values: Array, mask: Booleans) -> float:
    """Mean over all valid tokens of the batch; 0 without any."""
    return float(np.where(mask, values, 0).sum(dtype=np.float64) / max(int(mask.sum()), 1))


def mean(values: Array) -> float:
    """Plain mean, in float64."""
    return float(values.mean(dtype=np.float64))


def sample_std(values: Reals) -> float:
    """Standard deviation with n - 1; 0.0 for one value. The first value is subtracted, so equal values give exactly 0."""
    if values.size < 2:
        return 0.0
    shifted = values - values[0]
    return float(np.sqrt(np.square(shifted - mean(shifted)).sum(dtype=np.float64) / (values.size - 1)))


def token_std(values: Reals, mask: Booleans) -> float:
    """sqrt(max(0, E[v^2] - E[v]^2)) over valid tokens, n in the denominator; 0.0 for one token.

    In float32 this difference of squares loses every digit if the spread is small against the mean.
    """
    if mask.sum() < 2:
        return 0.0
    return float(np.sqrt(np.maximum(0.0, token_mean(np.square(values), mask) - token_mean(values, mask) ** 2)))
