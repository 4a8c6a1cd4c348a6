"""A Statistic: a formula over named columns, and a way to combine its values. A Metric: a value computed from statistics.

Statistics merge, however the tokens were split: sums add, maxima take the larger, log-sums add in log space. The level of a
statistic says what its formula reads, and which values are combined:

    token       one value per unmasked token; the formula reads columns.TokenColumns
    cluster     one value per sequence and slice cell, from the token sums of the sequence in the cell; for standard errors
    sequence    one value per whole sequence; the formula reads columns.SequenceColumns. Slices that cut sequences have none
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

import numpy as np

from ratioscope.arrays import Floats
from ratioscope.record import GAPS, kin

StatisticLevel = Literal["token", "cluster", "sequence"]
Combine = Literal["sum", "max", "logsumexp"]
NEUTRAL: dict[Combine, float] = {"sum": 0.0, "max": float("-inf"), "logsumexp": float("-inf")}
"""The value that changes nothing when it is combined with another."""

Operand = Any
"""numpy.ndarray or torch.Tensor. `Any`, because the two have no common type that a type checker knows."""
Namespace = Any
"""The module numpy or torch. Formulas use only functions with the same name in both: exp abs isfinite where, and operators.

The program of an engine traces them: `metrics/engines/expressions.py` has the names that it knows."""


@dataclass(frozen=True)
class Statistic:
    """A formula and how its values combine."""

    name: str
    """The name of its column in a statistics table."""
    formula: Callable[[Any, Namespace], Operand]
    """(columns, numpy or torch) -> one value per element; the neutral value (0, -inf) at padding and elements set aside."""
    level: StatisticLevel = "token"
    combine: Combine = "sum"
    whole: bool = False
    """True if it relates tokens to their neighbours. Slices by token separate neighbours, so they do not have it."""


@cache
def product(a: Statistic, b: Statistic) -> Statistic:
    """Sum over sequences of (token sum of a) times (token sum of b): the cross product that standard errors need."""
    return Statistic(f"{a.name}_x_{b.name}", lambda sums, xp: sums[a.name] * sums[b.name], "cluster")


MetricKind = Literal["mean", "share", "count", "extreme", "ratio", "correlation", "shape", "z"]
"""The way a value is computed. share: a part of a count, in [0, 1]; shape: of a distribution; z: a value / its standard
error."""
Topic = Literal[
    "divergence", "gradient", "weights and ESS", "tails", "perplexity", "agreement", "honesty", "faults", "counts"
]
"""The question that a metric answers. Pages list metrics by topic."""

ALL_GAPS = tuple(GAPS)
SAMPLED = ("mismatch", "total")
"""The gaps whose tokens were sampled from the earlier policy. Only for these a mean of weights or of -x is a divergence."""


@dataclass(frozen=True)
class Tail:
    """The largest log-weights of each group. A Reading that needs a Tail receives one float array per group."""

    name: str


@dataclass(frozen=True)
class Quantity:
    """A value computed from merged statistics, one per group."""

    needs: tuple["Statistic | Tail | Quantity", ...]
    """The arguments of `value`, in order."""
    value: Callable[..., Floats]
    """A vectorised function of arrays of shape (groups,); NaN means not available."""
    column: str = ""
    """The column of a statistics table that may have the values of its rows; empty: none has."""

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The Statistics that it needs, directly or through other quantities."""
        return statistics_of(self.needs)


@dataclass(frozen=True)
class Band:
    """A range of values with a published reading."""

    low: float
    """The smallest value of the range."""
    high: float
    """The value at which the range ends."""
    reading: str
    """Meaning of a value in the range, in a few words."""
    source: str
    """Publisher of the reading."""


@dataclass(frozen=True)
class Metric:
    """One named number per group of statistics, and the facts about it that cards, pages and reports show."""

    name: str
    """The name without its gap, such as kl_k3."""
    unit: str
    """The unit of the value; 1 for a pure number."""
    formula: str
    """In plain characters; x, S, m and w as in docs/metrics.md."""
    meaning: str
    """Meaning of the value, in one or two sentences."""
    needs: tuple[Statistic | Tail | Quantity, ...]
    """The arguments of `value`, in order."""
    value: Callable[..., Floats]
    """A vectorised function of arrays of shape (groups,); NaN means not available."""
    error: Quantity | None = None
    """The standard error; None if the metric has none."""
    gaps: tuple[str, ...] = ALL_GAPS
    level: Literal["token", "sequence"] = "token"
    """The unit that is counted or averaged."""
    estimator: str = ""
    """The name of the estimator."""
    weighting: str = "every unmasked token counts once"
    """The weight of a token or sequence in the value."""
    direction: str = ""
    """The direction of a divergence or difference."""
    range: str = ""
    """The possible values, as an interval; for counts the first of them."""
    bands: tuple[Band, ...] = ()
    absent: str = "no usable token is on record"
    """Why the value can be missing although its gap is on record; follows "not available, because"."""
    why: Callable[[Callable[[str], float | None]], str] | None = None
    """(name of a metric -> its value of the same group) -> the one reason of `absent` that holds; None if there is but one."""
    title: str = field(kw_only=True)
    """The name in words, for the head of a chart or card; the gap follows it after a comma."""
    kind: MetricKind = field(kw_only=True)
    topic: Topic = field(kw_only=True)
    neutral: float = 0.0
    """The value where the two policies agree; 0 for a metric that has no such value."""
    worse: Literal["above", "below", "away"] = "away"
    """The side of the neutral value on which a value is worse; away: both sides."""
    bound: Literal["", "at least", "at most"] = ""
    """Kind of bound that a value without a standard error is: k-hat has failed, so the sample shows too little of the tail."""
    signal: str = ""
    """The signal that grades this metric's value by itself (metrics/grading/signals.py); empty: none does."""

    def is_of(self, gap: str) -> bool:
        """True if the gap has the metric. Gaps between readings have those of their kin that are of no policy by name."""
        like = SAMPLED if kin(gap) == "mismatch" else ALL_GAPS
        return gap in self.gaps if gap in GAPS else set(like) <= set(self.gaps)

    def is_bound(self, error: float | None) -> bool:
        """True if a value with this standard error is only a bound."""
        return error is None and self.bound != ""

    @property
    def bounds(self) -> tuple[float, float]:
        """The ends of the range, which neither a value nor its error band can exceed."""
        if not self.range:
            return -math.inf, math.inf
        least, *others = self.range.strip("[]()").split(", ")
        return float(least), math.inf if others[-1] == "..." else float(others[-1])

    @property
    def statistics(self) -> tuple[Statistic, ...]:
        """The Statistics that the metric and its standard error need."""
        return statistics_of(self.needs + (self.error.needs if self.error else ()))


def statistics_of(needs: Iterable[Statistic | Tail | Quantity]) -> tuple[Statistic, ...]:
    """The Statistics among these needs and the needs of their quantities, each once."""
    statistics: dict[Statistic, None] = {}
    for need in needs:
        if isinstance(need, Statistic):
            statistics[need] = None
        elif isinstance(need, Quantity):
            statistics.update(dict.fromkeys(need.statistics))
    return tuple(statistics)


def ratio(total: Floats, count: Floats) -> Floats:
    """total / count; NaN (not available) where count is 0."""
    return np.where(count > 0, total / np.where(count > 0, count, 1.0), np.nan)


@cache
def clusters_of(count: Statistic) -> Statistic:
    """The number of sequences in which the count is above 0."""
    return Statistic(f"clusters_of_{count.name}", lambda sums, xp: (sums[count.name] > 0) * 1.0, "cluster")


def clustered_error(total: Statistic, count: Statistic, *, scale: float = 1.0) -> Quantity:
    """Standard error of scale * total / count, both sums over tokens, with sequences as the independent units.

    Delta method (ratio estimator): sqrt(m/(m-1) * sum_i (a_i - mean * n_i)^2) / sum_i n_i over the m sequences of the
    group, from sums of a_i^2, a_i n_i and n_i^2, so that it merges. Not available for fewer than two sequences.
    """
    needs = (total, count, clusters_of(count), product(total, total), product(total, count), product(count, count))
    return Quantity(needs, lambda *sums: abs(scale) * error_of_ratio(*sums))


def error_of_ratio(a: Floats, n: Floats, m: Floats, aa: Floats, an: Floats, nn: Floats) -> Floats:
    """Standard error of sum a_i / sum n_i over m independent units, from these sums, m, and the sums of a_i^2, a_i n_i, n_i^2."""
    mean = ratio(a, n)
    # Rounding can leave a value slightly below 0 if every sequence has the same mean.
    spread = np.maximum(aa - 2 * mean * an + mean**2 * nn, 0.0)
    return np.where(m > 1, np.sqrt(spread * ratio(m, m - 1)) / n, np.nan)


def error_of_mean(total: Floats, total_of_squares: Floats, count: Floats) -> Floats:
    """Standard error of a mean over independent units, from the sum and the sum of squares; NaN below two units."""
    mean = ratio(total, count)
    spread = np.maximum(total_of_squares - count * mean**2, 0.0)
    return np.where(count > 1, np.sqrt(ratio(spread, count - 1) / count), np.nan)


def log_mean(log_total: Floats, n: Floats) -> Floats:
    """log(sum / n) from the log of the sum."""
    return np.where(n > 0, log_total - np.log(np.where(n > 0, n, 1.0)), np.nan)


def error_of_log_sums(log_total: Floats, log_squares: Floats, n: Floats) -> Floats:
    """error_of_mean from the logs of both sums."""
    return error_of_mean(np.exp(log_total), np.exp(log_squares), n)
