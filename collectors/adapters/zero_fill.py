"""Rollout log-probs of exactly 0.0 that no engine gave: what trainers write where one is missing."""

from __future__ import annotations

import sys
from typing import Any

CERTAIN_BUT_UNLIKELY = -1.0
"""nats. A 0.0 says that the engine was certain of the token. It is taken for a filler where the trainer gives the token less than
37 %: no rounding takes one to the other. Convention; certain tokens keep their 0.0."""

Tensor = Any
"""A torch.Tensor. `Any`, because torch is no dependency."""


def without_fill(rollout: Tensor, trainer: Tensor) -> Tensor:
    """rollout, NaN where it is a filler beside the trainer's log-probs. On their device, without waiting for it."""
    fill = (rollout == 0) & (trainer.detach() < CERTAIN_BUT_UNLIKELY)
    return sys.modules["torch"].where(fill, float("nan"), rollout)
