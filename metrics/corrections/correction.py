"""Corrections as data: the steps by which a trainer changes the importance weights and the loss mask.

A Correction is a tuple of steps over the tokens of one batch. `Weigh` sets the weights. `Reject` takes tokens or whole
sequences out of the mask. `Normalise` divides the weights by their mean. Every step reads the log-ratios x of the sampled
tokens; a step with `over = "remaining"` reads only the tokens that earlier steps left in the mask. Trainers differ in
little more than these choices, so a dialect translates a trainer's configuration into such a tuple.

    w token      exp(x)
    w sequence   exp(S), S the sum of x over the sequence
    w geometric  exp(m), m the mean of x over the sequence
"""

from dataclasses import dataclass
from math import inf
from typing import Literal

from ratioscope.errors import ConfigError
from ratioscope.record import kin

from ..distribution import Level
from ..metric import SAMPLED

WeightedGap = str
"""A gap whose tokens were sampled from its earlier side, so that exp(x) is an importance weight: mismatch, total, or that of
rollout to a reading; drift has none."""
Over = Literal["sampled", "remaining"]


@dataclass(frozen=True)
class Weigh:
    """Sets the weights to exp(x), exp(S) or exp(m), bounded to [low, high]."""

    level: Level = "token"
    """One of the three weights: of a token, a sequence, or the geometric mean of a sequence."""
    low: float = 0.0
    high: float = inf
    outside: Literal["clamp", "zero"] = "clamp"
    """A weight outside the bounds: `clamp` moves it to the bound, `zero` sets it to 0 (IcePop)."""
    log_limit: float = inf
    """The log-ratio is clamped to [-log_limit, log_limit] before exp; most trainers use 20, inf clamps nothing."""
    over: Over = "sampled"
    """Tokens that a sum or mean over a sequence reads."""


@dataclass(frozen=True)
class Reject:
    """Takes tokens or sequences out of the mask if their value lies outside [low, high]."""

    of: Literal["weight", "k1", "k2", "k3"]
    """The value of a token: its weight, K1 = -x, K2 = x^2/2, or K3 = exp(x) - 1 - x."""
    by: Literal["token", "sum", "mean", "max", "any"]
    """`token` removes single tokens. The others remove whole sequences by their `sum` (for weights: the product), their
    `mean` (for weights: the geometric mean), their `max`, or as soon as `any` token lies outside (a veto)."""
    low: float = -inf
    high: float = inf
    over: Over = "sampled"
    """Tokens that are read."""


@dataclass(frozen=True)
class Normalise:
    """Divides the weights by their mean over the batch."""

    by: Literal["token", "sequence"] = "token"
    """The mean over the remaining tokens, or the mean of the mean weights of the remaining sequences."""


CorrectionStep = Weigh | Reject | Normalise


@dataclass(frozen=True)
class Correction:
    """A named tuple of steps."""

    name: str
    steps: tuple[CorrectionStep, ...]
    gap: WeightedGap = "mismatch"
    """The log-ratio that the steps read; `total` for a trainer without `old` log-probs (bypass, off-policy IS)."""
    source: str = ""
    """User or publisher of the correction."""

    def __post_init__(self) -> None:
        for step in self.steps:
            if isinstance(step, Weigh | Reject) and not step.low <= step.high:
                raise ConfigError(f"{self.name}: bounds [{step.low:g}, {step.high:g}] are empty; give low <= high")
            if isinstance(step, Weigh) and step.low < 0:
                raise ConfigError(f"{self.name}: a weight is never below 0, found low = {step.low:g}")
        if sum(isinstance(step, Weigh) for step in self.steps) > 1:
            raise ConfigError(f"{self.name}: more than one step sets the weights; keep one Weigh")


def weighted_gap(gap: str) -> WeightedGap | None:
    """The gap as one that a correction can read, None where its weights correct nothing.

    >>> weighted_gap("total"), weighted_gap("rollout:referee"), weighted_gap("drift"), weighted_gap("old:referee")
    ('total', 'rollout:referee', None, None)
    """
    return gap if gap and kin(gap) in SAMPLED else None


def truncate(high: float, *, level: Level = "token", low: float = 0.0) -> Correction:
    """Truncated importance sampling: weights above `high` become `high` (below `low` become `low`)."""
    return Correction(f"truncate {level} at {_bounds(low, high)}", (Weigh(level, low, high),))


def mask(low: float, high: float, *, level: Level = "token") -> Correction:
    """Masked importance sampling (IcePop at token level): weights outside [low, high] become 0."""
    return Correction(f"mask {level} outside {_bounds(low, high)}", (Weigh(level, low, high, "zero"),))


def reject(of: Literal["weight", "k1", "k2", "k3"], by: Literal["token", "sum", "mean", "max", "any"],
           *, low: float = -inf, high: float = inf) -> Correction:  # fmt: skip
    """Rejection alone: the weights stay 1, and tokens or sequences outside the bounds leave the loss."""
    return Correction(f"reject {of} by {by} outside {_bounds(low, high)}", (Reject(of, by, low, high),))


def off_policy_clip(low: float, high: float) -> Correction:
    """Detached clip of current over rollout to [low, high]: importance sampling of the whole gap, as PPO bounds it."""
    return Correction(f"clip current/rollout to {_bounds(low, high)}", (Weigh("token", low, high),), gap="total")


NONE = Correction("none", (), source="every weight is 1 and nothing is removed: a trainer without a correction")

CORRECTIONS: tuple[Correction, ...] = (
    NONE,
    Correction("token TIS 2", (Weigh("token", high=2.0, log_limit=20.0),), source="Yao et al. 2025; slime and verl default cap"),
    Correction("token IcePop 0.5-5", (Weigh("token", 0.5, 5.0, "zero", 20.0),), source="IcePop; NeMo-RL documentation"),
    Correction("sequence TIS 2", (Weigh("sequence", high=2.0, log_limit=20.0),), source="Liu et al. 2025, sequence level"),
    Correction("sequence MIS 2", (Weigh("sequence", 0.0, 2.0, "zero", 20.0),), source="Liu et al. 2025; TRL 1.16 default at 3"),
    Correction("geometric MIS 0.999-1.001", (Weigh("token"), Reject("weight", "mean", 0.999, 1.001)),
               source="verl preset decoupled_geo_rs"),
    Correction("K3 rejection 0.01", (Weigh("token", high=2.0, log_limit=20.0), Reject("k3", "mean", high=0.01)),
               source="verl 0.9.1 seq_mean_k3"),
    Correction("veto 1e-4", (Weigh("token", high=2.0, log_limit=20.0), Reject("weight", "any", low=1e-4)),
               source="verl PR 3984 token veto threshold"),
)  # fmt: skip
USUAL = CORRECTIONS[:4]
"""Those that every place compares unless asked otherwise: distributions give their effect, without token rows."""


def _bounds(low: float, high: float) -> str:
    return f"[{low:g}, {high:g}]"
