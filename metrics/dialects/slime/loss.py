"""slime's clipped policy loss per token, before any TIS hook: PPO, dual clip, GSPO, CISPO, and OPSM's factor."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array

from ..single_precision import exp, single
from .settings import Settings
from .tokens import Step, clamped_to

READER = "the policy loss"


@dataclass(frozen=True)
class TokenLoss:
    """The policy loss of a step, per token."""

    loss: Array
    clipped: Array
    """Whether the clip decides the loss."""
    ppo_kl: Array
    """anchor - current."""
    ratio: Array
    """exp(current - anchor)."""


@dataclass(frozen=True)
class SequenceMask:
    """The mask of OPSM."""

    factor: Array
    """0 or 1 per token."""
    share: float
    """The share of each row's tokens with factor 0, summed over rows."""


def token_loss(step: Step, settings: Settings) -> TokenLoss:
    """The loss of `advantage_estimator`; GSPO's log-ratio is the mean over each row, repeated on its tokens."""
    current, advantages = step.needed("current", READER), step.needed("advantages", READER)
    ppo_kl = step.anchor - current
    if settings.advantage_estimator == "gspo":
        ppo_kl = np.broadcast_to(step.row_means(ppo_kl), ppo_kl.shape)
    ratio = exp(-ppo_kl)
    clamped = clamped_to(ratio, *settings.clip_bounds)
    if settings.advantage_estimator == "cispo":
        return TokenLoss(-clamped * advantages * current, clamped != ratio, ppo_kl, ratio)
    plain, capped = -ratio * advantages, -clamped * advantages
    loss = np.maximum(plain, capped)
    if settings.eps_clip_c is not None:
        dual = np.minimum(np.float32(-settings.eps_clip_c) * advantages, loss)
        loss = np.where(advantages < 0, dual, loss)
    return TokenLoss(loss, capped > plain, ppo_kl, ratio)


def sequence_mask(step: Step, settings: Settings) -> SequenceMask:
    """OPSM's factor is 0 for tokens of negative advantage in rows whose mean of anchor - current is above opsm_delta.

    Each token's own advantage decides. The share of a row counts masked tokens in its numerator, but not in its denominator.
    """
    far = step.row_means(step.anchor - step.needed("current", READER)) > np.float32(settings.opsm_delta)
    zeroed = single((step.needed("advantages", READER) < 0) & far) * step.inside
    share = (zeroed.sum(axis=1, keepdims=True, dtype=np.float64) / step.counts).sum()
    return SequenceMask(single(1) - zeroed, float(share))


def reference_kl(step: Step, reference: Array, settings: Settings) -> Array:
    """The term of KL to the reference per token, from x = current - reference; low_var_kl clamps the term to +-10."""
    current = step.needed("current", READER)
    x = current - reference
    match settings.kl_loss_type:
        case "k1":
            value = x
        case "k2":
            value = x * x / np.float32(2)
        case _:
            value = exp(-x) - np.float32(1) + x
    if settings.use_unbiased_kl:
        value = exp(current - step.anchor) * value
    return np.clip(value, -10, 10) if settings.kl_loss_type == "low_var_kl" else value
