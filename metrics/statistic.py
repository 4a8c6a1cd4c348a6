"""A Statistic: a formula over named columns plus a way to combine. Whoever can evaluate both is an engine.

Statistics merge, whatever the split: sums add, maxima take the larger, log-sums add in log space. A level says what the
formula reads, and so what its value is combined over:

    token       one value per unmasked token (columns.TokenColumns)
    cluster     one value per sequence and slice cell, from the token sums of that sequence in that cell; for standard errors
    sequence    one value per whole sequence (columns.SequenceColumns); only where a slice does not cut sequences
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

Level = Literal["token", "cluster", "sequence"]
Combine = Literal["sum", "max", "logsumexp"]
NEUTRAL: dict[Combine, float] = {"sum": 0.0, "max": float("-inf"), "logsumexp": float("-inf")}

Array = Any
"""numpy.ndarray or torch.Tensor. `Any`, because the two share no type that a checker knows."""
Namespace = Any
"""The numpy or torch module, of which formulas use what both spell alike: exp expm1 abs where maximum."""


@dataclass(frozen=True)
class Statistic:
    """Formulas return the combine's neutral value (0, -inf) where their columns do: at padding and at what was set aside.

    whole: it relates tokens to their neighbours, so that slices by token, which part them, do not keep it.
    """

    name: str
    formula: Callable[[Any, Namespace], Array]
    level: Level = "token"
    combine: Combine = "sum"
    whole: bool = False


@cache
def product(a: Statistic, b: Statistic) -> Statistic:
    """Sum over sequences of (token sum of a) times (token sum of b): the cross product that standard errors need."""
    return Statistic(f"{a.name}_x_{b.name}", lambda sums, xp: sums[a.name] * sums[b.name], "cluster")
