"""Perplexity of each policy on the sampled sequences, and the gap between two. Means over sequences, not tokens."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Floats

from ..columns import SequenceColumns
from ..metric import (
    ALL_GAPS,
    Metric,
    Namespace,
    Operand,
    Quantity,
    Statistic,
    error_of_log_sums,
    error_of_mean,
    log_mean,
    ratio,
)
from .validity import SEQUENCES

SUM_EARLIER = Statistic("sum_earlier", lambda c, xp: c.earlier)
SUM_LATER = Statistic("sum_later", lambda c, xp: c.later)


@dataclass(frozen=True)
class Surprise:
    """Sums over sequences of the surprise v = -mean logprob. A later logprob of -inf makes v +inf."""

    total: Statistic
    """Sum of v."""
    squares: Statistic
    """Sum of v^2."""
    log_total: Statistic
    """log of the sum of exp(v)."""
    log_squares: Statistic
    """log of the sum of exp(2v)."""


def _surprise(name: str, column: str) -> Surprise:
    def linear(s: SequenceColumns, xp: Namespace) -> Operand:
        return xp.where(s.sequence > 0, -getattr(s, column), 0.0)

    def logarithm(s: SequenceColumns, xp: Namespace) -> Operand:
        return xp.where(s.sequence > 0, -getattr(s, column), float("-inf"))

    return Surprise(
        Statistic(f"sum_log_ppl_{name}", linear, "sequence"),
        Statistic(f"sum_square_log_ppl_{name}", lambda s, xp: linear(s, xp) ** 2, "sequence"),
        Statistic(f"log_sum_ppl_{name}", logarithm, "sequence", "logsumexp"),
        Statistic(f"log_sum_square_ppl_{name}", lambda s, xp: 2 * logarithm(s, xp), "sequence", "logsumexp"),
    )


EARLIER = _surprise("earlier", "mean_earlier")
LATER = _surprise("later", "mean_later")
GAP = _surprise("gap", "mean_log_weight")


def _mean_of_logs(log_total: Floats, n: Floats) -> Floats:
    return np.exp(log_mean(log_total, n))


def _linear(title: str, name: str, of: Surprise, formula: str, meaning: str, gaps: tuple[str, ...]) -> Metric:
    return Metric(
        name, "nats", formula, meaning, title=title, needs=(of.total, SEQUENCES), value=ratio,
        error=Quantity((of.total, of.squares, SEQUENCES), error_of_mean), gaps=gaps, level="sequence",
        estimator="mean", weighting="every sequence counts once", absent="a slice by token has no whole sequences",
        kind="mean", topic="perplexity",
    )  # fmt: skip


def _exponential(
    title: str, name: str, of: Surprise, formula: str, meaning: str, gaps: tuple[str, ...], neutral: float = 0.0
) -> Metric:
    return Metric(
        name, "1", formula, meaning, title=title, needs=(of.log_total, SEQUENCES), value=_mean_of_logs,
        error=Quantity((of.log_total, of.log_squares, SEQUENCES), error_of_log_sums), gaps=gaps, level="sequence",
        estimator="mean", weighting="every sequence counts once", range="[0, inf)",
        absent="a slice by token has no whole sequences", kind="mean", topic="perplexity", neutral=neutral,
    )  # fmt: skip


def _of_policy(policy: str, of: Surprise, gaps: tuple[str, ...]) -> tuple[Metric, Metric]:
    return (
        _linear(f"Log-perplexity of {policy}", f"log_ppl_{policy}", of, f"mean over sequences of -mean({policy}_logprobs)",
                f"Log-perplexity of the sequences under {policy}.", gaps),
        _exponential(f"Perplexity of {policy}", f"ppl_{policy}", of, f"mean over sequences of exp(-mean({policy}_logprobs))",
                     f"Perplexity of the sequences under {policy}.", gaps),
    )  # fmt: skip


METRICS = (
    *_of_policy("rollout", EARLIER, ("mismatch", "total")),
    *_of_policy("old", LATER, ("mismatch",)),
    *_of_policy("current", LATER, ("total",)),
    _linear("Difference of log-perplexities", "log_ppl_gap", GAP, "mean over sequences of -m, m the sequence's mean x",
            "Log-perplexity, later minus earlier: positive if the later policy finds the sequences less likely.", ALL_GAPS),
    _exponential("Perplexity ratio", "ppl_ratio", GAP, "mean over sequences of exp(-m)",
                 "Perplexity, later / earlier, averaged over sequences; it is not exp of log_ppl_gap.", ALL_GAPS, neutral=1.0),
)  # fmt: skip
