"""The two losses that use verl's correction, each a mean over tokens: PPO-clip and, in bypass mode, REINFORCE."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Integers, Reals

from ..batch import DialectBatch, selected
from ..evaluation import Evaluation
from .rejection import CorrectedBatch, corrected_batch
from .settings import ClipRange, VerlSettings
from .weights import bounded, exp, token_mean


@dataclass(frozen=True)
class Loss:
    """The loss of one micro-batch."""

    per_token: Reals
    """The loss per token before averaging."""
    mask: Booleans
    """The tokens of the average."""
    weights: Array | None
    """The weights in the loss; None if there are none."""
    metrics: dict[str, float]


def decoupled_loss(batch: DialectBatch, settings: VerlSettings, groups: Sequence[Integers] | None) -> Evaluation:
    """PPO-clip with the driver's weights and mask, which come from old against rollout over the whole batch.

    `groups`: the rows of the workers' micro-batches; None: one call of the loss function with all rows.
    """
    whole = corrected_batch(batch.needed("old_logprobs"), batch.needed("rollout_logprobs"), batch.mask, settings)

    def loss(part: DialectBatch, rows: Integers) -> Loss:
        weights = None if whole.weights is None else whole.weights[rows]
        return _ppo_clip(part, part.needed("old_logprobs"), whole.mask[rows], weights, settings.clip)

    return _together(batch, groups, loss)


def bypass_loss(batch: DialectBatch, settings: VerlSettings, groups: Sequence[Integers] | None) -> Evaluation:
    """The bypass loss. Each micro-batch has its own correction, of current against rollout.

    `ppo_clip` uses rollout in place of old and applies no weights; `reinforce` applies them.
    """

    def loss(part: DialectBatch, rows: Integers) -> Loss:
        current, rollout = part.needed("current_logprobs"), part.needed("rollout_logprobs")
        correction = corrected_batch(current, rollout, part.mask, settings)
        if settings.loss_type == "ppo_clip":
            policy = _ppo_clip(part, rollout, correction.mask, None, settings.clip)
        else:
            policy = _reinforce(part, correction)
        return Loss(policy.per_token, correction.mask, policy.weights, policy.metrics | correction.metrics)

    return _together(batch, groups, loss)


def _ppo_clip(batch: DialectBatch, old: Reals, mask: Booleans, weights: Array | None, clip: ClipRange) -> Loss:
    """PPO with dual clip. The log-ratio is clamped to +-20 first; weights multiply the clipped loss."""
    current, advantages = batch.needed("current_logprobs"), batch.needed("advantages")
    difference = bounded(current.astype(np.float64) - old.astype(np.float64))
    losses, _, _ = _clipped(np.exp(difference), advantages.astype(np.float64), clip)
    _, binds, dual_binds = _clipped(exp(bounded(current - old)), advantages, clip)
    metrics = {
        "actor/pg_clipfrac": token_mean(binds, mask),
        "actor/ppo_kl": token_mean(-difference, mask),
        "actor/pg_clipfrac_lower": token_mean(dual_binds, mask),
    }
    return Loss(losses if weights is None else losses * weights, mask, weights, metrics)


def _reinforce(batch: DialectBatch, correction: CorrectedBatch) -> Loss:
    """-w * current * advantage. `actor/ppo_kl` is the mean of rollout - current, not clamped, over the tokens left."""
    current, rollout = (batch.needed(name).astype(np.float64) for name in ("current_logprobs", "rollout_logprobs"))
    losses = -batch.needed("advantages").astype(np.float64) * current
    if correction.weights is not None:
        losses = losses * correction.weights
    return Loss(
        losses, correction.mask, correction.weights, {"actor/ppo_kl": token_mean(rollout - current, correction.mask)}
    )


def _clipped(ratio: Reals, advantages: Reals, clip: ClipRange) -> tuple[Reals, Booleans, Booleans]:
    """(loss per token, whether the clip decides it, whether the dual clip decides it)."""
    plain, held = -advantages * ratio, -advantages * np.clip(ratio, 1 - clip.low, 1 + clip.high)
    worse, floor = np.maximum(plain, held), -advantages * clip.dual
    negative = advantages < 0
    return np.where(negative, np.minimum(floor, worse), worse), held > plain, (worse > floor) & negative


def _together(
    batch: DialectBatch, groups: Sequence[Integers] | None, loss: Callable[[DialectBatch, Integers], Loss]
) -> Evaluation:
    """The losses of all micro-batches in one Evaluation. Metrics are averaged, maxima too, as verl's workers do.

    Workers divide the loss by all tokens before rejection. Without `groups` the loss is divided by the tokens that are left, as
    in one call of verl's loss function.
    """
    every = np.arange(len(batch.mask))
    parts = [(rows, loss(selected(batch, rows), rows)) for rows in ([every] if groups is None else groups)]
    per_token, mask = np.zeros(batch.shape), np.zeros(batch.shape, np.bool_)
    weights = None if parts[0][1].weights is None else np.zeros(batch.shape, parts[0][1].weights.dtype)
    for rows, part in parts:
        per_token[rows], mask[rows] = part.per_token, part.mask
        if weights is not None and part.weights is not None:
            weights[rows] = part.weights
    divisor = mask.sum() if groups is None else batch.mask.sum()
    pg_loss = float(np.where(mask, per_token, 0.0).sum() / divisor)
    metrics = {name: float(np.mean([part.metrics[name] for _, part in parts])) for name in parts[0][1].metrics}
    return Evaluation(
        metrics | {"actor/pg_loss": pg_loss},
        weights,
        mask,
        losses={"pg_loss": pg_loss},
        arrays={"pg_losses": per_token},
    )
