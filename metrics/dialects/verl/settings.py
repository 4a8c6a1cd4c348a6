"""verl's correction settings as verl acts on them: what `parse` returns and everything else reads."""

from dataclasses import dataclass
from typing import Literal

from .presets import GENERATIONS, Generation

LEVELS = ("token", "sequence")
LOSS_TYPES = ("ppo_clip", "reinforce")
RATIO_LEVELS = ("token", "sequence", "geometric")
DIVERGENCES = (
    "token_k1", "token_k2", "token_k3",
    "seq_sum_k1", "seq_sum_k2", "seq_sum_k3",
    "seq_mean_k1", "seq_mean_k2", "seq_mean_k3",
    "seq_max_k2", "seq_max_k3",
)  # fmt: skip


@dataclass(frozen=True)
class Rejection:
    """Keep where the statistic lies in the bounds, both included. `lower` None: no lower bound (K2, K3).

    `option` is one of DIVERGENCES (K1 bounds are given as ratios and used as their logs) or, before 0.7.1, of RATIO_LEVELS.
    """

    option: str
    lower: float | None
    upper: float


@dataclass(frozen=True)
class ClipRange:
    """PPO's clip of the ratio to [1 - low, 1 + high] and the dual clip's bound for negative advantages."""

    low: float = 0.2
    high: float = 0.2
    dual: float = 3.0


@dataclass(frozen=True)
class VerlSettings:
    """A rollout_correction block as verl acts on it.

    `is_level` None: no importance weights. `is_lower` set: IcePop (zero outside the band), else truncation at `is_upper`.
    `veto`: a row with one valid token of ratio below it is dropped whole (before 0.7.1).
    """

    version: str
    is_level: Literal["token", "sequence"] | None = None
    is_upper: float = 2.0
    is_lower: float | None = None
    batch_normalize: bool = False
    rejections: tuple[Rejection, ...] = ()
    veto: float | None = None
    bypass: bool = False
    loss_type: Literal["ppo_clip", "reinforce"] = "ppo_clip"
    clip: ClipRange = ClipRange()
    warnings: tuple[str, ...] = ()

    @property
    def generation(self) -> Generation:
        """The generation this version belongs to."""
        return GENERATIONS[self.version]
