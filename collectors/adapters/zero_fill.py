"""Rollout log-probs of exactly 0.0 that trainers fill in for missing ones."""

import sys

from ..foreign import Tensor

CERTAIN_BUT_UNLIKELY = -1.0
"""nats. A real 0.0 means that the engine was certain of the token. A 0.0 counts as a filler if the trainer gives the token less
than 37%, because no rounding explains so large a difference. Convention; certain tokens keep their 0.0."""


def without_fill(rollout: Tensor, trainer: Tensor) -> Tensor:
    """rollout, with NaN in place of fillers; the trainer's log-probs decide. It stays on their device."""
    fill = (rollout == 0) & (trainer.detach() < CERTAIN_BUT_UNLIKELY)
    return sys.modules["torch"].where(fill, float("nan"), rollout)
