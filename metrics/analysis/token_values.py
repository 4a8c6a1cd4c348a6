"""Values of a single token, computed from its two log-probs: to sort and colour tokens by, and to find striking ones."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Floats

from ..definitions.divergence import k3

PROBABLE, LOWER = 0.5, 2.0
"""A confident disagreement: the earlier policy gave the token at least probability PROBABLE, and its log-prob is lower under
the later policy by more than LOWER nats (martingale 0.2)."""


@dataclass(frozen=True)
class TokenValue:
    """A value per token."""

    name: str
    title: str
    unit: str
    """Such as nats; 1 for a plain number."""
    formula: str
    """The formula over the columns, as text."""
    of: Callable[[Floats, Floats], Floats]
    """(earlier log-probs, later log-probs) -> values."""
    steps: tuple[float, ...]
    """Sizes at which the colour becomes stronger, ascending; for the weight, weights above 1. A convention."""
    two_sided: bool = True
    """True if the sign (for the weight: the sign of its logarithm) shows which policy gives the token the higher probability."""


def log_ratio(earlier: Floats, later: Floats) -> Floats:
    """x = later - earlier in nats; NaN if a side is unknown or the earlier one is -inf; -inf if the later one is."""
    with np.errstate(invalid="ignore"):
        return np.where(np.isfinite(earlier), later - earlier, np.nan)


def _k3(earlier: Floats, later: Floats) -> Floats:
    x = log_ratio(earlier, later)
    with np.errstate(over="ignore"):
        return np.where(np.isfinite(x), k3(np.where(np.isfinite(x), x, 0.0), np), np.where(np.isnan(x), np.nan, np.inf))


def _weight(earlier: Floats, later: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.exp(log_ratio(earlier, later))


def _prob_diff(earlier: Floats, later: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.exp(later) - np.exp(earlier)


VALUES = (
    TokenValue(
        "log_ratio", "Log-ratio", "nats", "x = later − earlier", log_ratio, (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)
    ),
    TokenValue(
        "abs_log_ratio",
        "Size of the log-ratio",
        "nats",
        "|x|",
        lambda earlier, later: np.abs(log_ratio(earlier, later)),
        (0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0),
        two_sided=False,
    ),
    TokenValue(
        "prob_diff",
        "Difference of probabilities",
        "1",
        "exp(later) − exp(earlier)",
        _prob_diff,
        (0.01, 0.02, 0.05, 0.1, 0.2, 0.4, 0.7),
    ),
    TokenValue(
        "kl_k3", "KL", "nats", "exp(x) − 1 − x", _k3, (0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0), two_sided=False
    ),
    TokenValue("weight", "Weight", "1", "w = exp(x)", _weight, (1.05, 1.1, 1.2, 1.5, 2.0, 5.0, 10.0)),
)
BY_NAME = {value.name: value for value in VALUES}


def confident_disagreement(earlier: Any, log_ratio: Any) -> Any:
    """True for each token that is a confident disagreement. earlier, log_ratio: arrays or polars expressions, in nats.

    A NaN is none. A later log-prob of -inf is one if the earlier policy was confident.
    """
    return (earlier >= math.log(PROBABLE)) & (log_ratio < -LOWER)


def step_of(value: TokenValue, size: float) -> int:
    """The strength of the colour of a value: -1 below the first of its steps, then 0, 1, ...

    size: the absolute value; for a weight, the weight or its reciprocal, whichever is above 1.
    """
    return sum(size >= step for step in value.steps) - 1
