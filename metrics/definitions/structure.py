"""Cheap discriminators: the shape of the log-ratios tells causes apart that a KL only sums up.

Independent noise per token is two-sided, light-tailed and adds up like a random walk; truncated sampling pushes every
ratio one way, a mixture-of-experts router gives few enormous ratios, a wrong context shifts whole sequences.
"""

import numpy as np

from ..metric import Metric, Values, clustered_error, ratio
from ..statistic import Array, Namespace, Statistic, product
from .divergence import SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO
from .validity import FINITE

FAR = 1e-3
"""Log-ratios smaller than this have no side (convention of the one-sidedness test)."""


def _far(x: Array, xp: Namespace) -> Array:
    return (xp.abs(x) > FAR) * 1.0


FAR_TOKENS = Statistic("far_tokens", lambda c, xp: _far(c.log_ratio, xp))
FAR_NEGATIVE = Statistic("far_negative_tokens", lambda c, xp: (c.log_ratio < -FAR) * 1.0)
SUM_CUBE_LOG_RATIO = Statistic("sum_cube_log_ratio", lambda c, xp: c.log_ratio * c.log_ratio * c.log_ratio)
SUM_FOURTH_LOG_RATIO = Statistic(
    "sum_fourth_log_ratio", lambda c, xp: (c.log_ratio * c.log_ratio) * (c.log_ratio * c.log_ratio)
)


def _variance_ratio(n: Values, x: Values, squares: Values, xx: Values, xn: Values, nn: Values) -> Values:
    """Spread of sequence sums around their expectation over the sum of the spreads of their tokens."""
    mean = ratio(x, n)
    tokens = squares - n * mean**2
    return np.where(tokens > 1e-14 * squares, (xx - 2 * mean * xn + mean**2 * nn) / tokens, np.nan)


def _excess_kurtosis(n: Values, x: Values, x2: Values, x3: Values, x4: Values) -> Values:
    mean, square, cube, fourth = ratio(x, n), ratio(x2, n), ratio(x3, n), ratio(x4, n)
    variance = square - mean**2
    central = fourth - 4 * mean * cube + 6 * mean**2 * square - 3 * mean**4
    return np.where(variance > 1e-14 * square, central / variance**2 - 3, np.nan)


METRICS = (
    Metric("one_sided_share", "1", "share of x < 0 among tokens with |x| > 0.001",
           "About a half for noise; near 1 (or 0) where sampling was truncated on one side only.",
           needs=(FAR_NEGATIVE, FAR_TOKENS), value=ratio, error=clustered_error(FAR_NEGATIVE, FAR_TOKENS),
           estimator="share", range="[0, 1]", weighting="every unmasked token with |x| > 0.001 counts once",
           absent="no token has |x| > 0.001", kind="share", topic="faults"),
    Metric("variance_ratio", "1", "sum over sequences of (S - mean(x) * tokens)^2 / sum over tokens of (x - mean(x))^2",
           "1 for independent noise; far above, whole sequences are off; near 0 with large |x|, the lists are shifted.",
           needs=(FINITE, SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO, product(SUM_LOG_RATIO, SUM_LOG_RATIO),
                  product(SUM_LOG_RATIO, FINITE), product(FINITE, FINITE)),
           value=_variance_ratio, estimator="ratio of variances", range="[0, inf)", absent="every log-ratio is the same",
           kind="ratio", topic="faults", neutral=1.0, worse="above"),
    Metric("excess_kurtosis", "1", "mean((x - mean(x))^4) / var(x)^2 - 3",
           "About 1 for rounding noise; above 50 few tokens carry almost everything, as when expert routers flip.",
           needs=(FINITE, SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO, SUM_CUBE_LOG_RATIO, SUM_FOURTH_LOG_RATIO),
           value=_excess_kurtosis, estimator="moments", range="[-2, inf)", absent="every log-ratio is the same",
           kind="shape", topic="tails"),
)  # fmt: skip
