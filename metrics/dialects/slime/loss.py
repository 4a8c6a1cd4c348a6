"""slime's training step with its averages, and its clipped policy loss per token before any TIS hook: PPO, dual clip, GSPO,
CISPO, and OPSM's factor.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Integers

from ..batch import DialectBatch
from ..evaluation import needed
from ..single_precision import dual_clip, exp, recorded, row_means, row_totals, single
from .settings import Settings


@dataclass(frozen=True)
class Step:
    """The arrays of all samples of one optimizer step, (rows, positions); None if the batch lacks them."""

    inside: Array
    """Positions that are not padding. slime has no padding."""
    mask: Array
    """1.0 for tokens that count, else 0.0."""
    current: Array | None
    old: Array
    """Log-probs of the weights before the update; current if slime skipped that pass."""
    anchor: Array
    """The denominator of the PPO ratio: old, or rollout in bypass mode."""
    rollout: Array | None
    advantages: Array | None
    micro_batches: list[Integers]
    """The rows of each micro-batch."""
    denominators: Array
    """The unmasked tokens of each row's rollout, (rows, 1)."""
    divisor: float
    """The divisor of the step's sums."""
    per_token: bool
    """Whether metrics are means over tokens, not over rollouts."""

    @property
    def counts(self) -> Array:
        """Unmasked tokens of each row, at least 1, (rows, 1)."""
        return np.maximum(row_totals(self.mask), np.float32(1))

    @property
    def has_loss(self) -> bool:
        """Whether the batch has the arrays that every loss reads."""
        return self.current is not None and self.advantages is not None

    def logged(self, values: Array, mask: Array | None = None) -> float:
        """slime's logged number of a per-token value: a masked sum over denominators that rejection does not change."""
        return self.summed(values, mask) / self.divisor

    def summed(self, values: Array, mask: Array | None = None) -> float:
        """The results of slime's reducer, summed over micro-batches. An infinity times a mask of 0 is nan, in slime too."""
        terms = np.where(self.inside, values * (self.mask if mask is None else mask), 0)
        rows = terms.sum(axis=1, keepdims=True, dtype=np.float64)
        return float(rows.sum() if self.per_token else (rows / np.maximum(self.denominators, 1)).sum())


def step_of(batch: DialectBatch, settings: Settings, micro_batches: list[Integers]) -> Step:
    """The batch with slime's anchor and denominators."""
    current, old, rollout = (
        None if value is None else recorded(value, batch.mask)
        for value in (batch.current_logprobs, batch.old_logprobs, batch.rollout_logprobs)
    )
    if old is None or settings.old_log_probs_missing:
        old = recorded(batch.needed("current_logprobs"), batch.mask)
    mask = single(batch.mask)
    counts = row_totals(mask)
    # The rollout number of each row, from 0. Rows with one `rollout_id` are one rollout; without ids each row is
    # one.
    ids = batch.extra.get("rollout_ids")
    rollouts = np.arange(len(batch.mask)) if ids is None else np.unique(ids, return_inverse=True)[1].reshape(-1)
    return Step(
        inside=np.arange(batch.shape[1]) < batch.lengths[:, None],
        mask=mask,
        current=current,
        old=old,
        anchor=recorded(batch.needed("rollout_logprobs"), batch.mask) if settings.use_rollout_logprobs else old,
        rollout=rollout,
        advantages=None if batch.advantages is None else recorded(batch.advantages, batch.mask),
        micro_batches=micro_batches,
        denominators=np.bincount(rollouts, counts[:, 0])[rollouts][:, None],
        divisor=_divisor(settings, counts, rollouts),
        per_token=settings.calculate_per_token_loss,
    )


def _divisor(settings: Settings, counts: Array, rollouts: Array) -> float:
    """The tokens of the step (at least 1 a row), or the number of rollouts: slime's configured number, not a count."""
    if settings.calculate_per_token_loss:
        return float(np.maximum(counts, 1).sum(dtype=np.float64))
    return float(settings.global_batch_size or max(len(np.unique(rollouts)), 1))


def clamped_to(ratio: Array, low: float, high: float) -> Array:
    """torch's clamp: if the lower bound is above the upper, every value becomes the upper."""
    return np.minimum(np.maximum(ratio, np.float32(low)), np.float32(high))


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
    current, advantages = needed(step, "current", READER), needed(step, "advantages", READER)
    ppo_kl = step.anchor - current
    if settings.advantage_estimator == "gspo":
        ppo_kl = np.broadcast_to(row_means(ppo_kl, step.mask), ppo_kl.shape)
    ratio = exp(-ppo_kl)
    clamped = clamped_to(ratio, *settings.clip_bounds)
    if settings.advantage_estimator == "cispo":
        return TokenLoss(-clamped * advantages * current, clamped != ratio, ppo_kl, ratio)
    plain, capped = -ratio * advantages, -clamped * advantages
    loss = np.maximum(plain, capped)
    if settings.eps_clip_c is not None:
        loss = dual_clip(loss, advantages, settings.eps_clip_c)
    return TokenLoss(loss, capped > plain, ppo_kl, ratio)


def sequence_mask(step: Step, settings: Settings) -> SequenceMask:
    """OPSM's factor is 0 for tokens of negative advantage in rows whose mean of anchor - current is above opsm_delta.

    Each token's own advantage decides. The share of a row counts masked tokens in its numerator, but not in its denominator.
    """
    far = row_means(step.anchor - needed(step, "current", READER), step.mask) > np.float32(settings.opsm_delta)
    zeroed = single((needed(step, "advantages", READER) < 0) & far) * step.inside
    share = (zeroed.sum(axis=1, keepdims=True, dtype=np.float64) / step.counts).sum()
    return SequenceMask(single(1) - zeroed, float(share))


def reference_kl(step: Step, reference: Array, settings: Settings) -> Array:
    """The term of KL to the reference per token, from x = current - reference; low_var_kl clamps the term to +-10."""
    current = needed(step, "current", READER)
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
