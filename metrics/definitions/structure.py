"""The shape of the log-ratios, which differs by cause where a KL does not.

Independent noise per token has both signs and light tails, and adds up like a random walk. Truncated sampling moves all ratios
in one direction. Flipping expert routers give a few enormous ratios. A wrong context shifts whole sequences.
"""

import numpy as np

from ratioscope.arrays import Floats

from ..metric import Metric, Statistic, clustered_error, product, ratio
from .divergence import SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO
from .validity import FINITE

FAR = 1e-3
"""Smaller log-ratios count as neither positive nor negative (convention of the one-sidedness test)."""


FAR_TOKENS = Statistic("far_tokens", lambda c, xp: (xp.abs(c.log_ratio) > FAR) * 1.0)
FAR_NEGATIVE = Statistic("far_negative_tokens", lambda c, xp: (c.log_ratio < -FAR) * 1.0)
SUM_CUBE_LOG_RATIO = Statistic("sum_cube_log_ratio", lambda c, xp: c.log_ratio * c.log_ratio * c.log_ratio)
SUM_FOURTH_LOG_RATIO = Statistic(
    "sum_fourth_log_ratio", lambda c, xp: (c.log_ratio * c.log_ratio) * (c.log_ratio * c.log_ratio)
)


def _variance_ratio(n: Floats, x: Floats, squares: Floats, xx: Floats, xn: Floats, nn: Floats) -> Floats:
    """Spread of the sequence sums around their expectation, divided by the sum of the spreads of their tokens."""
    mean = ratio(x, n)
    tokens = squares - n * mean**2
    return np.where(tokens > 1e-14 * squares, (xx - 2 * mean * xn + mean**2 * nn) / tokens, np.nan)


def _excess_kurtosis(n: Floats, x: Floats, x2: Floats, x3: Floats, x4: Floats) -> Floats:
    mean, square, cube, fourth = ratio(x, n), ratio(x2, n), ratio(x3, n), ratio(x4, n)
    variance = square - mean**2
    central = fourth - 4 * mean * cube + 6 * mean**2 * square - 3 * mean**4
    return np.where(variance > 1e-14 * square, central / variance**2 - 3, np.nan)


METRICS = (
    Metric("one_sided_share", "1", "share of x < 0 among tokens with |x| > 0.001",
           "The share of log-ratios that are negative: about 0.5 for noise, near 1 or 0 if only one side truncates its "
           "distribution (top-p, top-k).",
           needs=(FAR_NEGATIVE, FAR_TOKENS), value=ratio, error=clustered_error(FAR_NEGATIVE, FAR_TOKENS),
           estimator="share", range="[0, 1]", weighting="every unmasked token with |x| > 0.001 counts once",
           absent="no token has |x| > 0.001", kind="share", topic="faults",
           title="Share of negative log-ratios"),
    Metric("variance_ratio", "1", "sum over sequences of (S - mean(x) * tokens)^2 / sum over tokens of (x - mean(x))^2",
           "The variance between sequences over that within them: 1 for independent noise. Far above 1, whole sequences differ. "
           "Near 0 with large |x|, the lists are shifted.",
           needs=(FINITE, SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO, product(SUM_LOG_RATIO, SUM_LOG_RATIO),
                  product(SUM_LOG_RATIO, FINITE), product(FINITE, FINITE)),
           value=_variance_ratio, estimator="ratio of variances", range="[0, inf)", absent="every log-ratio is the same",
           kind="ratio", topic="faults", neutral=1.0, worse="above",
           title="Variance between sequences against noise"),
    Metric("excess_kurtosis", "1", "mean((x - mean(x))^4) / var(x)^2 - 3",
           "The weight of the tails of the log-ratios: about 1 for rounding noise. Above 50 a few tokens make almost all of the "
           "gap, as when expert routers flip.",
           needs=(FINITE, SUM_LOG_RATIO, SUM_SQUARE_LOG_RATIO, SUM_CUBE_LOG_RATIO, SUM_FOURTH_LOG_RATIO),
           value=_excess_kurtosis, estimator="moments", range="[-2, inf)", absent="every log-ratio is the same",
           kind="shape", topic="tails", title="Excess kurtosis of log-ratios"),
)  # fmt: skip
