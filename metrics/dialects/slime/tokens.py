"""One training step as slime's loss sees it: per-token arrays in float32, the anchor of the ratio, and its averages."""

from dataclasses import dataclass

import numpy as np

from ..absent_arrays import needed
from ..evaluation import Array, DialectBatch
from ..micro_batches import Rows
from ..single_precision import row_totals, single
from .settings import Settings


@dataclass(frozen=True)
class Step:
    """(rows, positions) arrays of all samples of one optimizer step; absent ones None. `mask`: 0.0 and 1.0.

    `old`: of the weights before the update; the current ones where slime skipped that pass. `anchor`: what the PPO ratio
    divides by, old or in bypass mode rollout. `inside`: positions a sample has; slime knows no padding. `denominators`: the
    unmasked tokens of each row's rollout, (rows, 1). `divisor`: what the step's sums are divided by.
    """

    inside: Array
    mask: Array
    current: Array | None
    old: Array
    anchor: Array
    rollout: Array | None
    advantages: Array | None
    micro_batches: list[Rows]
    denominators: Array
    divisor: float
    per_token: bool

    @property
    def counts(self) -> Array:
        """Unmasked tokens of each row, at least 1, (rows, 1)."""
        return np.maximum(row_totals(self.mask), np.float32(1))

    def row_means(self, values: Array) -> Array:
        """Mean over each row's unmasked tokens, 0 for none, (rows, 1)."""
        return row_totals(values * self.mask) / self.counts

    @property
    def has_loss(self) -> bool:
        """Whether there is what every loss reads."""
        return self.current is not None and self.advantages is not None

    def needed(self, name: str, reader: str) -> Array:
        """One of the arrays above; SchemaError naming what reads it, if the batch came without."""
        return needed(self, name, reader)

    def logged(self, values: Array, mask: Array | None = None) -> float:
        """A per-token value as slime logs it: its masked sum over denominators that no rejection changes."""
        return self.summed(values, mask) / self.divisor

    def summed(self, values: Array, mask: Array | None = None) -> float:
        """The sum over micro-batches of what slime's reducer returns. An infinity times a mask of 0 is nan there too."""
        terms = np.where(self.inside, values * (self.mask if mask is None else mask), 0)
        rows = terms.sum(axis=1, keepdims=True, dtype=np.float64)
        return float(rows.sum() if self.per_token else (rows / np.maximum(self.denominators, 1)).sum())


def step_of(batch: DialectBatch, settings: Settings, micro_batches: list[Rows]) -> Step:
    """The batch with slime's anchor and denominators."""
    current, old, rollout = (
        None if value is None else recorded(value, batch.mask)
        for value in (batch.current_logprobs, batch.old_logprobs, batch.rollout_logprobs)
    )
    if old is None or settings.old_log_probs_missing:
        old = recorded(batch.needed("current_logprobs"), batch.mask)
    mask = single(batch.mask)
    counts = row_totals(mask)
    rollouts = _rollouts(batch)
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


def recorded(values: Array, mask: Array) -> Array:
    """Per-token values in float32; where nobody recorded a masked one slime has a finite number, so 0 stands for it."""
    return single(np.where(mask | np.isfinite(values), values, 0))


def _rollouts(batch: DialectBatch) -> Array:
    """The rollout of each row, counted from 0: samples that share a `rollout_id`; without ids every row is its own."""
    ids = batch.extra.get("rollout_ids")
    return np.arange(len(batch.mask)) if ids is None else np.unique(ids, return_inverse=True)[1].reshape(-1)


def _divisor(settings: Settings, counts: Array, rollouts: Array) -> float:
    """The tokens of the step (at least 1 a row), or the number of rollouts, which is configured and not counted."""
    if settings.calculate_per_token_loss:
        return float(np.maximum(counts, 1).sum(dtype=np.float64))
    return float(settings.global_batch_size or max(len(np.unique(rollouts)), 1))


def clamped_to(ratio: Array, low: float, high: float) -> Array:
    """As torch clamps: where the bounds are crossed, everything becomes the upper one."""
    return np.minimum(np.maximum(ratio, np.float32(low)), np.float32(high))
