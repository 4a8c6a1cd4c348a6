"""Perplexity of each policy on the sampled sequences, and the gap between two. Means over sequences, not tokens."""

from typing import Any

import numpy as np

from .metric import ALL_GAPS, Metric, Reading, Values, error_of_mean, ratio
from .statistic import Array, Namespace, Statistic
from .validity import SEQUENCES


def _negative(value: Array, s: Any, xp: Namespace) -> Array:
    """-value where the sequence counts, else 0. A later logprob of -inf makes it +inf, which is a legal perplexity."""
    return xp.where(s.sequence > 0, -value, 0.0)


def _log(value: Array, s: Any, xp: Namespace) -> Array:
    return xp.where(s.sequence > 0, -value, float("-inf"))


SUM_EARLIER = Statistic("sum_earlier", lambda c, xp: c.earlier)
SUM_LATER = Statistic("sum_later", lambda c, xp: c.later)
SUM_LOG_PPL_EARLIER = Statistic("sum_log_ppl_earlier", lambda s, xp: _negative(s.mean_earlier, s, xp), "sequence")
SUM_SQUARE_LOG_PPL_EARLIER = Statistic(
    "sum_square_log_ppl_earlier", lambda s, xp: _negative(s.mean_earlier, s, xp) ** 2, "sequence"
)
SUM_LOG_PPL_LATER = Statistic("sum_log_ppl_later", lambda s, xp: _negative(s.mean_later, s, xp), "sequence")
SUM_SQUARE_LOG_PPL_LATER = Statistic(
    "sum_square_log_ppl_later", lambda s, xp: _negative(s.mean_later, s, xp) ** 2, "sequence"
)
SUM_LOG_PPL_GAP = Statistic("sum_log_ppl_gap", lambda s, xp: _negative(s.mean_log_weight, s, xp), "sequence")
SUM_SQUARE_LOG_PPL_GAP = Statistic(
    "sum_square_log_ppl_gap", lambda s, xp: _negative(s.mean_log_weight, s, xp) ** 2, "sequence"
)
LOG_SUM_PPL_EARLIER = Statistic(
    "log_sum_ppl_earlier", lambda s, xp: _log(s.mean_earlier, s, xp), "sequence", "logsumexp"
)
LOG_SUM_SQUARE_PPL_EARLIER = Statistic(
    "log_sum_square_ppl_earlier", lambda s, xp: 2 * _log(s.mean_earlier, s, xp), "sequence", "logsumexp"
)
LOG_SUM_PPL_LATER = Statistic("log_sum_ppl_later", lambda s, xp: _log(s.mean_later, s, xp), "sequence", "logsumexp")
LOG_SUM_SQUARE_PPL_LATER = Statistic(
    "log_sum_square_ppl_later", lambda s, xp: 2 * _log(s.mean_later, s, xp), "sequence", "logsumexp"
)
LOG_SUM_PPL_RATIO = Statistic(
    "log_sum_ppl_ratio", lambda s, xp: _log(s.mean_log_weight, s, xp), "sequence", "logsumexp"
)
LOG_SUM_SQUARE_PPL_RATIO = Statistic(
    "log_sum_square_ppl_ratio", lambda s, xp: 2 * _log(s.mean_log_weight, s, xp), "sequence", "logsumexp"
)


def _mean_of_logs(log_total: Values, n: Values) -> Values:
    return np.where(n > 0, np.exp(log_total - np.log(np.where(n > 0, n, 1.0))), np.nan)


def _error_of_logs(log_total: Values, log_squares: Values, n: Values) -> Values:
    return error_of_mean(np.exp(log_total), np.exp(log_squares), n)


def _linear(
    name: str, total: Statistic, squares: Statistic, formula: str, meaning: str, gaps: tuple[str, ...]
) -> Metric:
    return Metric(
        name, "nats", formula, meaning, needs=(total, SEQUENCES), value=ratio,
        error=Reading((total, squares, SEQUENCES), error_of_mean), gaps=gaps, level="sequence",
        estimator="mean", weighting="every sequence counts once", absent="a slice by token has no whole sequences",
    )  # fmt: skip


def _exponential(
    name: str, total: Statistic, squares: Statistic, formula: str, meaning: str, gaps: tuple[str, ...]
) -> Metric:
    return Metric(
        name, "1", formula, meaning, needs=(total, SEQUENCES), value=_mean_of_logs,
        error=Reading((total, squares, SEQUENCES), _error_of_logs), gaps=gaps, level="sequence", estimator="mean",
        weighting="every sequence counts once", range="[0, inf)", absent="a slice by token has no whole sequences",
    )  # fmt: skip


def _of_policy(policy: str, side: str, gaps: tuple[str, ...]) -> tuple[Metric, Metric]:
    logs = {
        "earlier": (SUM_LOG_PPL_EARLIER, SUM_SQUARE_LOG_PPL_EARLIER),
        "later": (SUM_LOG_PPL_LATER, SUM_SQUARE_LOG_PPL_LATER),
    }
    exps = {
        "earlier": (LOG_SUM_PPL_EARLIER, LOG_SUM_SQUARE_PPL_EARLIER),
        "later": (LOG_SUM_PPL_LATER, LOG_SUM_SQUARE_PPL_LATER),
    }
    formula = f"mean over sequences of -mean({policy}_logprobs)"
    return (
        _linear(f"log_ppl_{policy}", *logs[side], formula, f"Log-perplexity of the sequences under {policy}.", gaps),
        _exponential(f"ppl_{policy}", *exps[side], f"mean over sequences of exp(-mean({policy}_logprobs))",
                     f"Perplexity of the sequences under {policy}.", gaps),
    )  # fmt: skip


METRICS = (
    *_of_policy("rollout", "earlier", ("mismatch", "total")),
    *_of_policy("old", "later", ("mismatch",)),
    *_of_policy("current", "later", ("total",)),
    _linear("log_ppl_gap", SUM_LOG_PPL_GAP, SUM_SQUARE_LOG_PPL_GAP, "mean over sequences of -m, m the sequence's mean x",
            "Log-perplexity of later minus earlier: positive where the later policy is the more surprised.", ALL_GAPS),
    _exponential("ppl_ratio", LOG_SUM_PPL_RATIO, LOG_SUM_SQUARE_PPL_RATIO, "mean over sequences of exp(-m)",
                 "Perplexity later / earlier, averaged per sequence; not exp of the mean gap.", ALL_GAPS),
)  # fmt: skip
