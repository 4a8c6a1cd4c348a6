"""Pareto k-hat: whether an average over the weights can be trusted. It is computed from the largest log-weights of a group.

Vehtari, Simpson, Gelman, Yao, Gabry 2024, "Pareto smoothed importance sampling"; fit by Zhang and Stephens 2009. K is
fixed, so that tails merge: the K largest weights of the whole are among the K largest of its parts.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from ratioscope.arrays import Booleans, Floats, Integers

from ..metric import SAMPLED, Band, Metric, Quantity, Tail
from .validity import SEQUENCES, TOKENS

K = 256
MINIMUM_TAIL = 25
FACTORS = 8
"""Numbers that are multiplied before a logarithm is taken: each is above 0.001, so that no product is 0."""
GROUPS_AT_ONCE = 64
"""Number of fits that are computed at once; more would not fit into the processor's cache."""

TOKEN_TAIL = Tail("token_tail")
SEQUENCE_TAIL = Tail("sequence_tail")
TAILS = (TOKEN_TAIL, SEQUENCE_TAIL)

Tails = Sequence[npt.ArrayLike | None]


def tail_lengths(counts: Floats) -> Integers:
    """Number of the largest of n weights that are fitted: min(n / 5, 3 sqrt(n), K - 1); 0 where n is not positive.

    Vehtari 2024, appendix H.
    """
    n = np.where(counts > 0, counts, 0.0)
    lengths: Integers = np.minimum(np.minimum(n / 5, 3 * np.sqrt(n)), K - 1).astype(np.int64)
    return lengths


def khat_threshold(n: Floats) -> Floats:
    """Largest k-hat at which an average over n weights can be trusted: min(1 - 1/log10(n), 0.7). Vehtari 2024, eq. 13."""
    return np.minimum(1 - 1 / np.log10(np.maximum(n, 1.0 + 1e-9)), 0.7)


def tail_shapes(tails: Tails, counts: Floats) -> Floats:
    """k-hat of each group, shape (groups,). tails: the largest log-weights of each group, in any order; counts: its weights.

    -inf if the tail is constant, so that the weights are bounded. NaN for fewer than MINIMUM_TAIL tail points, or if equal
    weights leave nothing to fit.
    """
    shapes = np.full(len(counts), np.nan)
    lengths = tail_lengths(np.asarray(counts))
    fitted = np.flatnonzero(lengths >= MINIMUM_TAIL)
    largest, lengths = _side_by_side([tails[group] for group in fitted.tolist()]), lengths[fitted]
    is_available = np.isfinite(largest).any(axis=1)
    for length in np.unique(lengths):
        groups = np.flatnonzero((lengths == length) & is_available & ~np.isnan(largest[:, length]))
        for part in np.array_split(groups, len(groups) // GROUPS_AT_ONCE + 1):
            shapes[fitted[part]] = _shapes_of_length(largest[part, : length + 1])
    return shapes


def _shapes_of_length(largest: Floats) -> Floats:
    """k-hat of each row. largest: descending log-weights; the last one is the threshold of the tail."""
    constant = largest[:, 0] == largest[:, -1]
    weights = np.exp(largest - largest[:, :1])
    excesses = (weights[:, :-1] - weights[:, -1:])[:, ::-1]
    with np.errstate(all="ignore"):
        return np.where(constant, -np.inf, generalised_pareto_shape(excesses))


def generalised_pareto_shape(excesses: Floats) -> Floats:
    """Shape k of a generalised Pareto distribution, per row: the posterior mean of Zhang and Stephens 2009, regularised.

    excesses: over the threshold, ascending. Vehtari 2024 (appendix G) adds ten observations of shape 1/2. NaN if a quarter of
    the excesses is 0.
    """
    n = excesses.shape[-1]
    points = 30 + int(np.sqrt(n))
    quarter = excesses[..., int(n / 4 + 0.5) - 1]
    spread = 1 - np.sqrt(points / (np.arange(1, points + 1) - 0.5))
    grid = 1 / excesses[..., -1:] + spread / (3 * np.where(quarter > 0, quarter, np.nan)[..., None])
    shape = _mean_log1p(-grid, excesses)
    log_likelihood = n * (np.log(-grid / shape) - shape - 1)
    weight = np.exp(log_likelihood - log_likelihood.max(axis=-1, keepdims=True))
    location = (grid * weight).sum(axis=-1) / weight.sum(axis=-1)
    k = np.log1p(-location[..., None] * excesses).mean(axis=-1)
    return np.asarray((k * n + 0.5 * 10) / (n + 10))


def _mean_log1p(scales: Floats, excesses: Floats) -> Floats:
    """Mean of log(1 + scale x) over the excesses x of a row. Logarithms of products take a quarter of the time of one for each.

    The products have shape (numbers, scales, groups): all factors at once would not fit into the processor's cache.
    """
    numbers, scales_last = excesses.T[:, None, :], scales.T
    n = len(numbers)
    width = -(-n // FACTORS)
    products = numbers[:width] * scales_last + 1
    factors = np.empty_like(products)
    for first in range(width, n, width):
        more = factors[: n - first]
        np.multiply(numbers[first : first + width], scales_last, out=more)
        more += 1
        products[: len(more)] *= more
    logarithms = np.log(products, out=products).T
    total: Floats = np.ascontiguousarray(logarithms).sum(axis=-1)
    is_beyond = ~np.isfinite(total)  # a product is beyond the largest float64, or a number is NaN
    row, place = np.nonzero(is_beyond)
    total[row, place] = np.log1p(scales[row, place, None] * excesses[row]).sum(axis=-1)
    total /= n
    return total


def _side_by_side(tails: Tails) -> Floats:
    """Log-weights of shape (groups, K), descending; NaN beyond the length of a tail."""
    known = [np.empty(0) if tail is None else np.asarray(tail) for tail in tails]
    lengths = np.array([len(tail) for tail in known], np.int64)
    result = np.full((len(known), K), np.nan)
    result[np.arange(K) < lengths[:, None]] = np.concatenate([*known, np.empty(0)], dtype=np.float64)
    if ((result[:, 1:] <= result[:, :-1]) | np.isnan(result[:, 1:])).all():
        return result  # sorted already, as writers leave them; sorting takes longer
    # NaN sorts last either way, so the negative is sorted.
    return -np.sort(-result, axis=1)


TOKEN_SHAPE = Quantity((TOKEN_TAIL, TOKENS), tail_shapes, "token_tail_shape")
SEQUENCE_SHAPE = Quantity((SEQUENCE_TAIL, SEQUENCES), tail_shapes, "sequence_tail_shape")
COUNTS = {TOKEN_TAIL: TOKENS, SEQUENCE_TAIL: SEQUENCES}
"""Tail -> the number of weights that it is the tail of."""
SHAPES = {TOKEN_TAIL: TOKEN_SHAPE, SEQUENCE_TAIL: SEQUENCE_SHAPE}
"""Tail -> its shape, which says as much of a row as the tail does, in a number in the place of K. Shapes do not merge."""


def trusted(shape: Floats, n: Floats, *, power: int = 1) -> Booleans:
    """True where the average of w^power can be trusted. The tail of w^power has shape power * k."""
    return power * shape < khat_threshold(n)


def _available(shape: Floats) -> Floats:
    return np.where(np.isfinite(shape), shape, np.nan)


def _pareto_k(level: Literal["token", "sequence"], shape: Quantity) -> Metric:
    return Metric(
        f"pareto_k_{level}", "1", f"tail shape of the weights from the {K} largest",
        "The shape of the upper tail of the weights. Above a threshold that depends on the sample size, a few weights dominate, "
        "and averages cannot be trusted.",
        needs=(shape,), value=_available, gaps=SAMPLED, level=level,
        estimator="Zhang and Stephens 2009, regularised", range="(-inf, inf)", weighting="the largest weights decide",
        bands=(Band(0.7, float("inf"), "not to be trusted", "Vehtari 2024; lower for fewer than 2200 weights"),),
        absent=f"the {level}s give fewer than {MINIMUM_TAIL} tail points, or their weights are equal",
        why=lambda value: f"the weights of all {level}s are equal" if value("max_abs_log_ratio") == 0
        else f"the {level}s give fewer than {MINIMUM_TAIL} tail points",
        kind="shape", topic="tails", title=f"Pareto k of {level} weights",
    )  # fmt: skip


METRICS = (_pareto_k("token", TOKEN_SHAPE), _pareto_k("sequence", SEQUENCE_SHAPE))
