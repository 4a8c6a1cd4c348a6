"""The gap as a policy gradient sees it: log-ratios and weights, each token with its advantage.

A policy gradient on tokens of the earlier policy multiplies the score of a token by its advantage A. The later policy asks for
w A. The difference, (w - 1) A, is what a gradient without importance weights leaves out. Noise that does not know A has a mean
of 0 here: K3 grows with it, and these means do not. They are divided by the sum of |A|, so that they do not depend on the unit
of A; times mean_abs_advantage they are plain means over tokens. The score that the sampler expects, which score centering
removes (arXiv:2609.20807), is not in them: it needs the log-probs of several tokens at each position.
"""

from collections.abc import Callable

from ..metric import SAMPLED, Metric, Namespace, Operand, Statistic, clustered_error, ratio
from .divergence import k3

ADVANTAGE_TOKENS = Statistic("advantage_tokens", lambda c, xp: c.has_advantage)
SUM_ABS_ADVANTAGE = Statistic("sum_abs_advantage", lambda c, xp: xp.abs(c.advantage))
SUM_ADVANTAGE_LOG_RATIO = Statistic("sum_advantage_log_ratio", lambda c, xp: c.advantage * c.log_ratio)


def _excess(advantage: Operand, x: Operand, xp: Namespace) -> Operand:
    """A (w - 1), with w - 1 as x + k3(x), which loses no digit of a small x; 0 without an advantage, whatever w is."""
    return xp.where(xp.abs(advantage) > 0.0, advantage * (x + k3(x, xp)), 0.0)


SUM_ADVANTAGE_EXCESS = Statistic("sum_advantage_excess", lambda c, xp: _excess(c.advantage, c.log_ratio, xp))


def _why(value: Callable[[str], float | None]) -> str:
    size = value("mean_abs_advantage")
    if size is None:
        return _ABSENT
    return "every advantage is 0" if size == 0 else "weights are beyond the largest number"


_ABSENT = (
    "no advantages are in the statistics on record; pass advantages= to the collector, together with the log-probs"
)
_WEIGHTING = "every unmasked token of finite log-ratio counts by |A|"
_DIRECTION = "later minus earlier; above 0 the later policy favours tokens of positive advantage"


def _weighed(name: str, unit: str, formula: str, total: Statistic, title: str, meaning: str) -> Metric:
    return Metric(name, unit, formula, meaning, needs=(total, SUM_ABS_ADVANTAGE), value=ratio, gaps=SAMPLED,
                  error=clustered_error(total, SUM_ABS_ADVANTAGE), estimator="mean", weighting=_WEIGHTING,
                  direction=_DIRECTION, range="(-inf, inf)", absent=_ABSENT, why=_why, kind="mean", topic="gradient",
                  title=title)  # fmt: skip


METRICS = (
    _weighed("advantage_log_ratio", "nats", "sum(A x) / sum(|A|)", SUM_ADVANTAGE_LOG_RATIO,
             "Log-ratio weighted by the advantage",
             "The mean log-ratio with the advantage as its weight: 0 for noise that does not know the advantage."),
    _weighed("advantage_excess", "1", "sum(A (w - 1)) / sum(|A|)", SUM_ADVANTAGE_EXCESS,
             "Bias of the policy gradient",
             "The net part of the advantages that a policy gradient without importance weights leaves out: 0 for noise. It "
             "averages out if its sign changes from step to step, and adds up if it does not."),
    Metric("mean_abs_advantage", "1", "mean(|A|)",
           "The mean size of an advantage, in the unit of the trainer.",
           needs=(SUM_ABS_ADVANTAGE, ADVANTAGE_TOKENS), value=ratio, gaps=SAMPLED,
           error=clustered_error(SUM_ABS_ADVANTAGE, ADVANTAGE_TOKENS), estimator="mean", range="[0, inf)",
           weighting="every unmasked token with a finite log-ratio and an advantage counts once", absent=_ABSENT, kind="mean",
           topic="gradient", title="Mean |advantage|"),
)  # fmt: skip
