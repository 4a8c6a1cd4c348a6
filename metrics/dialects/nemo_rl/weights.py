"""NeMo-RL's correction weights (raw ratio at some level, then tis, icepop or seq-mask-tis) and its sequence error filter."""

from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Array, Singles

from ..batch import DialectBatch
from ..single_precision import exp, row_totals, single
from .settings import Settings

EPSILON = 1e-8
"""NeMo-RL adds this number to every denominator: without valid tokens a masked mean is 0, not NaN."""

_READ_BESIDES = ("sample_mask", "rewards", "reference_logprobs")


@dataclass(frozen=True)
class Tensors:
    """The arrays of the loss in float32, (rows, positions) unless said otherwise.

    Masks are factors of 0 and 1. They remove no NaN and no infinity: NaN * 0 is NaN, in NeMo-RL too.
    """

    rollout: Singles
    old: Singles
    current: Singles
    advantages: Singles
    token_mask: Singles
    """1 for sampled tokens."""
    sample_mask: Singles
    """(rows, 1)."""
    reference: Singles | None
    """The reference policy's log-probs; None without one."""
    rewards: Singles | None
    """(rows,)."""

    @property
    def mask(self) -> Singles:
        """1.0 at valid tokens of valid samples."""
        return self.token_mask * self.sample_mask


@dataclass(frozen=True)
class Weights:
    """The correction weights, (rows, positions) or (rows, 1), and the decisions of the truncation."""

    value: Singles
    """The weight after truncation or filtering."""
    outside: Array | None = None
    """Whether the weight is out of bounds: the shape of `value`, or (rows, 1) for seq-mask-tis. None without truncation."""
    kept: Array | None = None
    """Whether the filter keeps the token or row; None if there is no filter."""
    geometric_mean: Singles | None = None
    """The mean that seq-mask-tis filters by, (rows, 1); None for the others."""


def recorded(batch: DialectBatch, settings: Settings) -> Tensors:
    """The driver's tensors.

    Without `sample_mask` every row is valid. The batch may lack old if NeMo-RL skips the old-policy forward.
    """
    rows, _ = batch.shape
    extra = {name: single(value) for name, value in batch.extra.items() if name in _READ_BESIDES}
    current = batch.needed("current_logprobs")
    skipped = settings.skips_old_forward and batch.old_logprobs is None
    return Tensors(
        rollout=single(batch.needed("rollout_logprobs")),
        old=single(current if skipped else batch.needed("old_logprobs")),
        current=single(current),
        advantages=single(batch.needed("advantages")),
        token_mask=single(batch.mask),
        sample_mask=extra.get("sample_mask", np.ones(rows, np.float32)).reshape(rows, 1),
        reference=extra.get("reference_logprobs"),
        rewards=extra.get("rewards"),
    )


def in_the_loss(t: Tensors, settings: Settings, sample_mask: Singles) -> Tensors:
    """The loss's tensors, with the driver's sample mask.

    With `force_on_policy_ratio` current takes the place of old, except in pull request 2269.
    """
    forced = settings.force_on_policy_ratio and settings.version != "pr2269"
    return replace(t, old=t.current if forced else t.old, sample_mask=sample_mask)


def masked_row_means(values: Singles, mask: Singles) -> Singles:
    """Mean over the tokens of each row, (rows, 1); 0 for a row without any."""
    return single(row_totals(values * mask) / (row_totals(mask) + single(EPSILON)))


def correction_weights(t: Tensors, settings: Settings) -> Weights:
    """The weight that multiplies the loss if the correction is on. It is logged even if the correction is off.

    A weight that is not finite becomes 0, not the bound. A sequence with a sum of log-ratios above 88.7 thus leaves the loss.
    """
    difference = t.old - t.rollout
    if settings.level == "sequence":
        log_weight = row_totals(difference * t.mask)
    elif settings.level == "sequence_mean":
        log_weight = masked_row_means(difference, t.token_mask)
    else:
        log_weight = difference
    weight = exp(log_weight)
    weight = single(np.where(np.isfinite(weight), weight, 0.0))
    low, high = settings.bounds
    if settings.truncation is None:
        return Weights(weight)
    if settings.truncation == "tis":
        return Weights(np.clip(weight, low, high), (weight > high) | (weight < low))
    if settings.truncation == "icepop":
        inside = (weight >= low) & (weight <= high)
        return Weights(single(np.where(inside, weight, 0.0)), ~inside, inside)
    mean = exp(masked_row_means(single(np.where(np.isfinite(difference), difference, 0.0)), t.token_mask))
    inside = (mean >= low) & (mean <= high)
    return Weights(weight * single(inside), ~inside, inside, mean)


@dataclass(frozen=True)
class SequenceFilter:
    """The result of the driver's sequence error filter, which runs before the loss."""

    sample_mask: Singles
    """(rows, 1)."""
    metrics: dict[str, float]
    """The metrics that the driver logs."""


def sequence_filter(t: Tensors, settings: Settings) -> SequenceFilter:
    """Masks samples whose mean of exp(abs(rollout - old)) is NaN or above the threshold; metrics exist without one, too.

    Rewards matter only for `masked_correct_pct`. Without rewards a row counts as correct if its first advantage is positive.
    """
    if settings.skips_old_forward:
        return SequenceFilter(t.sample_mask, dict.fromkeys(_logged(settings.version), 0.0))
    count = row_totals(t.mask)
    valid = count[:, 0] > 0
    error = single(row_totals(exp(np.abs(t.rollout - t.old) * t.mask) * t.mask) / np.maximum(count, 1))
    if settings.version != "pr2269":
        error = single(np.where(count > 0, error, 0.0))
    kept = t.sample_mask[:, 0] > 0
    if settings.seq_logprob_error_threshold is not None:
        kept = kept & (error[:, 0] <= settings.seq_logprob_error_threshold)
    dropped = (t.sample_mask[:, 0] > 0) & ~kept
    rewards = t.advantages[:, :1].ravel() > 0 if t.rewards is None else t.rewards == 1
    values = {
        **_extremes(error[:, 0] if settings.version == "pr2269" else error[valid, 0], ""),
        **_extremes(error[kept & valid, 0], "_after_mask"),
        "num_masked_seqs_by_logprob_error": float(dropped.sum()),
        "masked_correct_pct": float(rewards[dropped].mean()) if dropped.any() else 0.0,
    }
    if settings.seq_logprob_error_threshold is None:
        values |= _extremes(error[valid, 0], "_after_mask")
    return SequenceFilter(single(kept).reshape(-1, 1), {name: values[name] for name in _logged(settings.version)})


def _extremes(errors: Singles, suffix: str) -> dict[str, float]:
    """max, mean and min over sequences; 0 without any."""
    if not errors.size:
        return {f"{word}_seq_mult_prob_error{suffix}": 0.0 for word in ("max", "mean", "min")}
    values = {"max": errors.max(), "mean": single(errors.mean(dtype=np.float64)), "min": errors.min()}
    return {f"{word}_seq_mult_prob_error{suffix}": float(value) for word, value in values.items()}


def _logged(version: str) -> tuple[str, ...]:
    errors = [
        f"{word}_seq_mult_prob_error{suffix}" for suffix in ("", "_after_mask") for word in ("max", "mean", "min")
    ]
    words = errors[:1] if version == "pr2269" else errors
    return (*words, "num_masked_seqs_by_logprob_error", "masked_correct_pct")
