"""slime's TIS hooks. All but MIS give one weight per token from one ratio, unchanged masks, and no clamp before exp.

MIS (mis.py) is divergences, a bounded weight, rejection, veto and batch normalisation, in that order. A value of a whole sample
is repeated on its tokens. Log-ratios are clamped to +-20 for weights and chi-squared only.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import needed
from ..single_precision import exp, k3, row_means, row_totals, single, total
from .loss import Step, clamped_to
from .settings import Settings


@dataclass(frozen=True)
class HookOutcome:
    """The results of a TIS hook for one step."""

    weights: Array | None
    """The factors of the clipped loss per token; None if the hook leaves the loss unchanged."""
    mask: Array
    """1.0 for tokens that stay in the loss, else 0.0."""
    metrics: Mapping[str, Array]
    """Metric name -> value per token."""


def vanilla_tis(step: Step, settings: Settings) -> HookOutcome:
    """clamp(old / rollout, tis_clip_low, tis_clip)."""
    ratio = exp(step.old - needed(step, "rollout", "vanilla TIS"))
    return _outcome(step, ratio, clamped_to(ratio, settings.tis_clip_low, settings.tis_clip))


def icepop(step: Step, settings: Settings) -> HookOutcome:
    """old / rollout inside the bounds, else 0. Zeroed tokens stay in every denominator."""
    ratio = exp(step.old - needed(step, "rollout", "icepop"))
    inside = (ratio >= np.float32(settings.tis_clip_low)) & (ratio <= np.float32(settings.tis_clip))
    return _outcome(step, ratio, np.where(inside, ratio, np.float32(0)))


def off_policy_is(step: Step, settings: Settings) -> HookOutcome:
    """clamp(current / rollout) without gradient: one weight for the whole gap between rollout and current."""
    ratio = exp(needed(step, "current", "off-policy IS") - needed(step, "rollout", "off-policy IS"))
    return _outcome(step, ratio, clamped_to(ratio, *settings.off_policy_clip))


def _outcome(step: Step, ratio: Array, weights: Array) -> HookOutcome:
    metrics = {"tis": ratio, "tis_abs": np.abs(ratio - np.float32(1)), "tis_clipfrac": weights != ratio}
    return HookOutcome(weights, step.mask, metrics)


SAFETY_BOUND = np.float32(20)
SMALLEST_MEAN = 1e-8
"""A micro-batch with a mean weight at or below this number is not normalised."""


def mis(step: Step, settings: Settings) -> HookOutcome:
    """The results of the MIS example. Without use_tis they are divergences alone; loss and masks are unchanged."""
    metrics = _divergences(step)
    if not settings.use_tis:
        return HookOutcome(None, step.mask, _prefixed(step, metrics))
    log_ratio = step.old - needed(step, "rollout", "mis")
    raw = exp(_clamped(_at_level(step, log_ratio, settings.tis_level)))
    weights, mask, shares = _bounded(step, raw, settings)
    metrics |= {"tis_weight_before_bound": raw, "tis_weight_after_bound": weights, **shares}
    if settings.use_rs:
        mask, shares = _rejected(step, mask, log_ratio, settings)
        metrics |= shares
    metrics["is_ratio_mean_after_tis_rs"] = weights
    if settings.tis_batch_normalize:
        factor = _mean_weights(step, weights, settings.tis_level)
        weights, metrics["batch_norm_factor"] = weights / factor, factor
    # Mean, smallest and largest final weight of each row's unmasked tokens; 0 for a row without any.
    valid = step.mask > 0
    some = valid.any(axis=1, keepdims=True)
    least = np.where(valid, weights, np.inf).min(axis=1, keepdims=True, initial=np.inf)
    most = np.where(valid, weights, -np.inf).max(axis=1, keepdims=True, initial=-np.inf)
    metrics |= {
        "is_ratio_mean_final": row_means(weights, step.mask),
        "is_ratio_min_final": np.where(some, least, 0),
        "is_ratio_max_final": np.where(some, most, 0),
    }
    return HookOutcome(weights, mask, _prefixed(step, metrics))


def _divergences(step: Step) -> dict[str, Array]:
    rollout, old = needed(step, "rollout", "mis"), step.old
    trainer, sampler = -row_means(old, step.mask), -row_means(rollout, step.mask)
    log_ratio = old - rollout
    gap = trainer - sampler
    square = exp(_clamped(log_ratio)) ** 2
    return {
        "training_log_ppl": trainer,
        "training_ppl": exp(trainer),
        "rollout_log_ppl": sampler,
        "rollout_ppl": exp(sampler),
        "kl": rollout - old,
        "k3_kl": k3(log_ratio),
        "log_ppl_diff": gap,
        "log_ppl_abs_diff": np.abs(gap),
        "ppl_ratio": exp(gap),
        "chi2_token": row_means(square, step.mask) - np.float32(1),
        "chi2_seq": exp(2 * _clamped(row_totals(log_ratio * step.mask))) - np.float32(1),
    }


def _clamped(log_ratio: Array) -> Array:
    return np.clip(log_ratio, -SAFETY_BOUND, SAFETY_BOUND)


def _at_level(step: Step, log_ratio: Array, level: str) -> Array:
    """The log-ratio per token, or its sum or mean over each row's unmasked tokens."""
    match level:
        case "token":
            return log_ratio
        case "sequence":
            return np.broadcast_to(row_totals(log_ratio * step.mask), log_ratio.shape)
        case _:
            return np.broadcast_to(row_means(log_ratio, step.mask), log_ratio.shape)


def _bounded(step: Step, raw: Array, settings: Settings) -> tuple[Array, Array, dict[str, Array]]:
    """(weights after `tis_mode`, 0 at masked tokens; the mask; metrics). Mode `mask` masks tokens and bounds no weight."""
    low, high = (single(bound) for bound in settings.tis_bounds)
    below, above = raw < low, raw > high
    match settings.tis_mode:
        case "truncate":
            return np.clip(raw, 0, high) * step.mask, step.mask, {"tis_truncate_fraction": above}
        case "clip":
            shares = {"tis_clip_fraction_low": below, "tis_clip_fraction_high": above}
            return np.clip(raw, low, high) * step.mask, step.mask, shares
        case _:
            shares = {"tis_mask_fraction_low": below, "tis_mask_fraction_high": above}
            return raw * step.mask, step.mask * ((raw >= low) & (raw <= high)), shares


def _rejected(step: Step, mask: Array, log_ratio: Array, settings: Settings) -> tuple[Array, dict[str, Array]]:
    """(the mask without tokens outside the rejection bounds and without samples that have a vetoed token, metrics)."""
    low, high = (single(bound) for bound in settings.rs_bounds)
    ratio = exp(_clamped(_at_level(step, log_ratio, settings.rs_level)))
    metrics: dict[str, Array] = {"rs_mask_fraction_low": ratio < low, "rs_mask_fraction_high": ratio > high}
    mask = mask * ((ratio >= low) & (ratio <= high))
    if settings.rs_veto_threshold is None:
        return mask, metrics
    vetoed = (log_ratio < np.log(single(settings.rs_veto_threshold))) & (step.mask > 0)
    any_vetoed = np.any(vetoed, axis=1)[:, None]
    metrics |= {"rs_catastrophic_token_fraction": vetoed, "rs_catastrophic_seq_fraction": any_vetoed}
    return mask * ~any_vetoed, metrics


def _mean_weights(step: Step, weights: Array, level: str) -> Array:
    """The mean weight of each row's micro-batch over the original mask, (rows, 1); 1 if it is at or below SMALLEST_MEAN."""
    means = np.ones((len(weights), 1), np.float32)
    for rows in step.micro_batches:
        weighed, mask = weights[rows] * step.mask[rows], step.mask[rows]
        if level == "token":
            mean = total(weighed) / max(total(mask), 1.0)
        else:
            mean = total(row_totals(weighed) / step.counts[rows]) / len(rows)
        if mean > SMALLEST_MEAN:
            means[rows] = mean
    return means


def _prefixed(step: Step, metrics: dict[str, Array]) -> dict[str, Array]:
    return {f"mis_{name}": np.broadcast_to(single(value), step.mask.shape) for name, value in metrics.items()}


HOOKS = {"vanilla_tis": vanilla_tis, "icepop": icepop, "mis": mis, "off_policy_is": off_policy_is}
