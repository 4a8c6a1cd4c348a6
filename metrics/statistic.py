"""A Statistic: a formula over named columns, and a way to combine its values. An engine evaluates both.

Statistics merge, however the tokens were split: sums add, maxima take the larger, log-sums add in log space. The level of a
statistic says what its formula reads, and which values are combined:

    token       one value per unmasked token; the formula reads columns.TokenColumns
    cluster     one value per sequence and slice cell, from the token sums of the sequence in the cell; for standard errors
    sequence    one value per whole sequence; the formula reads columns.SequenceColumns. Slices that cut sequences have none
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

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
