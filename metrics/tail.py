"""Pareto k-hat: can an average over these weights be trusted? Read from the largest log-weights, kept per group.

Vehtari, Simpson, Gelman, Yao, Gabry 2024, "Pareto smoothed importance sampling"; fit by Zhang and Stephens 2009. K is
fixed in advance, so that tails merge: the largest K of two parts are the largest K of the whole.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from .metric import SAMPLED, Band, Metric, Reading, Tail, Values
from .validity import SEQUENCES, TOKENS

K = 256
MINIMUM_TAIL = 25

TOKEN_TAIL = Tail("token_tail")
SEQUENCE_TAIL = Tail("sequence_tail")
TAILS = (TOKEN_TAIL, SEQUENCE_TAIL)

Tails = Sequence[npt.ArrayLike | None]


def tail_length(n: float) -> int:
    """How many of the largest of n weights are fitted: min(n / 5, 3 sqrt(n), K - 1). Vehtari 2024, appendix H."""
    return int(min(n / 5, 3 * np.sqrt(n), K - 1))


def khat_threshold(n: Values) -> Values:
    """Largest k-hat at which an average over n weights can be trusted: min(1 - 1/log10(n), 0.7). Vehtari 2024, eq. 13."""
    return np.minimum(1 - 1 / np.log10(np.maximum(n, 1.0 + 1e-9)), 0.7)


def tail_shape(log_weights: npt.ArrayLike, n: float) -> float:
    """k-hat of the n weights whose largest logarithms these are; -inf where the tail is constant: bounded beyond doubt.

    NaN for fewer than MINIMUM_TAIL tail points, or where ties leave nothing to fit.
    """
    length = tail_length(n)
    largest = np.sort(np.asarray(log_weights, np.float64))[::-1]
    if length < MINIMUM_TAIL or len(largest) <= length or not np.isfinite(largest[0]):
        return float("nan")
    if largest[0] == largest[length]:
        return float("-inf")
    weights = np.exp(largest[: length + 1] - largest[0])
    return generalised_pareto_shape((weights[:-1] - weights[-1])[::-1])


def generalised_pareto_shape(excesses: npt.NDArray[np.float64]) -> float:
    """Shape k of a generalised Pareto distribution: the posterior mean of Zhang and Stephens 2009, regularised.

    excesses: ascending, over the threshold. Vehtari 2024 (appendix G) adds ten observations of shape 1/2.
    """
    n = len(excesses)
    points = 30 + int(np.sqrt(n))
    quarter = excesses[int(n / 4 + 0.5) - 1]
    if quarter <= 0:
        return float("nan")
    grid = 1 / excesses[-1] + (1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))) / (3 * quarter)
    shape = np.log1p(-grid[:, None] * excesses).mean(axis=1)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    location = float((grid * weight).sum() / weight.sum())
    k = float(np.log1p(-location * excesses).mean())
    return (k * n + 0.5 * 10) / (n + 10)


def _shapes(tails: Tails, n: Values) -> Values:
    pairs = zip(tails, n, strict=True)
    return np.array([np.nan if t is None or not m > 0 else tail_shape(t, m) for t, m in pairs], np.float64)


TOKEN_SHAPE = Reading((TOKEN_TAIL, TOKENS), _shapes)
SEQUENCE_SHAPE = Reading((SEQUENCE_TAIL, SEQUENCES), _shapes)


def trusted(shape: Values, n: Values, *, power: int = 1) -> npt.NDArray[np.bool_]:
    """Whether the average of w^power can be trusted: the tail of w^power has shape power * k."""
    return power * shape < khat_threshold(n)


def _available(shape: Values) -> Values:
    return np.where(np.isfinite(shape), shape, np.nan)


def _pareto_k(level: Literal["token", "sequence"], shape: Reading) -> Metric:
    return Metric(
        f"pareto_k_{level}", "1", f"tail shape of the weights from the {K} largest",
        "Above the threshold of the sample size a few weights dominate, and averages over them cannot be trusted.",
        needs=(shape,), value=_available, gaps=SAMPLED, level=level,
        estimator="Zhang and Stephens 2009, regularised", range="(-inf, inf)", weighting="the largest weights decide",
        bands=(Band(0.7, float("inf"), "not to be trusted", "Vehtari 2024; lower for fewer than 2200 weights"),),
        absent=f"the {level}s give fewer than {MINIMUM_TAIL} tail points, or their weights are equal",
    )  # fmt: skip


METRICS = (_pareto_k("token", TOKEN_SHAPE), _pareto_k("sequence", SEQUENCE_SHAPE))
