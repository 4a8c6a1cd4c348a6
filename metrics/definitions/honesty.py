"""Mean weights and their z: a test of whether the earlier policy sampled these tokens, and none was filtered out.

If so, the mean of exp(x) is 1 for any later policy, whatever numerics, staleness or wrong weights do: the mean tests the
records, not the gap. It is tested only if k-hat is below its threshold, because with heavy tails a sample mean usually lies
below 1. The mean is over the sampling mask; tokens that the trainer filtered out before recording cannot be seen here.
"""

from collections.abc import Callable

import numpy as np

from ratioscope.arrays import Floats

from ..metric import (
    SAMPLED,
    Metric,
    Quantity,
    Statistic,
    clustered_error,
    error_of_log_sums,
    error_of_mean,
    log_mean,
    ratio,
)
from .tail import SEQUENCE_SHAPE, TOKEN_SHAPE, trusted
from .validity import SEQUENCES, TOKENS
from .weights import SEQUENCE_POWERS, SUM_SQUARE_WEIGHT, SUM_WEIGHT


def _z(shape: Floats, total: Floats, squares: Floats, n: Floats) -> Floats:
    """(mean - 1) / standard error; NaN if k-hat fails. No clusters: given its prefix, a token's weight has mean 1."""
    error = error_of_mean(total, squares, n)
    testable = trusted(shape, n) & (error > 0)
    return (ratio(total, n) - 1) / np.where(testable, error, np.nan)


def _z_of_logs(shape: Floats, log_total: Floats, log_squares: Floats, n: Floats) -> Floats:
    return _z(shape, np.exp(log_total), np.exp(log_squares), n)


def _mean_of_logs(log_total: Floats, n: Floats) -> Floats:
    return np.exp(log_mean(log_total, n))


def _why(level: str, value: Callable[[str], float | None]) -> str:
    if value("max_abs_log_ratio") == 0:
        return "it was not tested: all weights are equal"
    if value(f"pareto_k_{level}") is None:
        return f"it was not tested: there are too few {level}s for Pareto k-hat, which has to be low"
    return "it was not tested: a few extreme weights dominate (Pareto k-hat too high)"


def _z_metric(level: str, needs: tuple[Quantity | Statistic, ...], value: Callable[..., Floats]) -> Metric:
    return Metric(
        f"mean_weight_{level}_z", "1", f"(mean_weight_{level} - 1) / (sd of the weights / sqrt({level}s))",
        f"The distance of mean_weight_{level} from 1 in standard errors. If it exceeds 5 in size and the mean is off by more "
        "than 0.01, the recorded log-probs are not the sampler's.",
        needs=needs, value=value, gaps=SAMPLED, level="token" if level == "token" else "sequence",
        estimator="z of a martingale difference", range="(-inf, inf)", weighting=f"every {level} counts once",
        absent="it was not tested: a few extreme weights dominate (Pareto k-hat too high), or all weights are equal",
        why=lambda value: _why(level, value), kind="z", topic="honesty", title=f"Mean weight per {level}, z-score",
    )  # fmt: skip


METRICS = (
    Metric("mean_weight_token", "1", "mean(exp(x))",
           "The mean weight: 1 for any later policy, if the earlier policy sampled these tokens and none was filtered out.",
           needs=(SUM_WEIGHT, TOKENS), value=ratio, error=clustered_error(SUM_WEIGHT, TOKENS), gaps=SAMPLED,
           estimator="mean", range="[0, inf)", kind="mean", topic="honesty", neutral=1.0, title="Mean weight per token"),
    _z_metric("token", (TOKEN_SHAPE, SUM_WEIGHT, SUM_SQUARE_WEIGHT, TOKENS), _z),
    Metric("mean_weight_sequence", "1", "mean over sequences of exp(S)",
           "The mean weight of whole sequences: 1 under the conditions of mean_weight_token.",
           needs=(SEQUENCE_POWERS[0], SEQUENCES), value=_mean_of_logs, gaps=SAMPLED, level="sequence",
           error=Quantity((*SEQUENCE_POWERS[:2], SEQUENCES), error_of_log_sums), estimator="mean", range="[0, inf)",
           weighting="every sequence counts once", absent="a slice by token has no whole sequences",
           kind="mean", topic="honesty", neutral=1.0, title="Mean weight per sequence"),
    _z_metric("sequence", (SEQUENCE_SHAPE, *SEQUENCE_POWERS[:2], SEQUENCES), _z_of_logs),
)  # fmt: skip
