"""TRL's importance-sampling ratio, and the metrics and the loss of `_compute_loss` for one micro-batch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles

from ..single_precision import exp, k3, log, mean, row_means, row_totals, single, total
from .settings import CLIPPED_LOSSES, Settings


def importance_ratio(old: Singles, rollout: Singles, mask: Booleans, s: Settings) -> Singles:
    """The ratio after clamping or masking: (rows, positions), or (rows, 1) per sequence.

    A masked token has ratio 1 before clamping or masking, and so has a token without a rollout log-prob (NaN). Infinite
    differences become the largest float32.
    """
    difference = np.nan_to_num((old - rollout) * single(mask), nan=0.0)
    ratio = exp(row_totals(difference) if s.per_sequence else difference)
    low, high = s.bounds
    if s.vllm_importance_sampling_mode.endswith("truncate"):
        return np.clip(ratio, low, high)
    return single(np.where((ratio < low) | (ratio > high), 0.0, ratio))


def kept_sequences(
    advantages: Singles, earlier: Singles, current: Singles, mask: Booleans, threshold: float
) -> Booleans:
    """The off-policy mask, (rows, 1) or the shape of the advantages.

    A sequence stays if its advantage is not negative, or if its mean of earlier - current is at most the threshold. A token
    without an earlier log-prob has difference 0.
    """
    average = row_means(np.nan_to_num(earlier - current, nan=0.0), single(mask))
    return (advantages >= 0) | (average <= threshold)


def sampling_metrics(
    difference: Singles, ratio: Singles, mask: Booleans, processes: Sequence[Integers], s: Settings
) -> dict[str, float]:
    """`sampling/*` of one generation batch, from old - rollout and the ratio.

    A mean is a plain mean over processes of the mean over each process's tokens. A process without tokens has 0.
    """
    masks = [mask[rows] for rows in processes]
    gaps = [np.abs(difference[rows])[inside] for rows, inside in zip(processes, masks, strict=True)]
    gaps = [gap[~np.isnan(gap)] for gap in gaps]
    pairs = zip(processes, masks, strict=True)
    weights = [ratio[rows].ravel() if s.per_sequence else ratio[rows][inside] for rows, inside in pairs]
    name = "sampling/importance_sampling_ratio"
    return {
        "sampling/sampling_logp_difference/mean": sum(mean(gap) if gap.size else 0.0 for gap in gaps) / len(gaps),
        "sampling/sampling_logp_difference/max": max(float(gap.max(initial=0.0)) for gap in gaps),
        f"{name}/min": min(float(weight.min()) if weight.size else 0.0 for weight in weights),
        f"{name}/mean": sum(mean(weight) if weight.size else 0.0 for weight in weights) / len(weights),
        f"{name}/max": max(float(weight.max()) if weight.size else 0.0 for weight in weights),
    }


@dataclass(frozen=True)
class Inputs:
    """The arrays of one micro-batch in float32, (rows, positions) unless said otherwise."""

    old: Singles
    current: Singles
    mask: Booleans
    advantages: Singles
    """(rows, 1) or per token."""
    ratio: Singles | None
    """The importance-sampling ratio, (rows, 1) or per token; None without correction."""
    kept: Booleans | None
    """The off-policy mask, (rows, 1) or per token; None without it."""
    entropy: Singles | None
    reference: Singles | None
    """The reference policy's log-probs; None without one."""


@dataclass(frozen=True)
class Accumulation:
    """The accumulation window of a micro-batch."""

    micro_batches: int
    """Micro-batches in the window."""
    tokens: int
    """Unmasked tokens in the window."""


@dataclass(frozen=True)
class Step:
    """The results of one micro-batch."""

    metrics: dict[str, float]
    """NaN for a metric without values to average."""
    loss: float
    """Its part of the loss of the accumulation window."""


def micro_step(i: Inputs, s: Settings, window: Accumulation) -> Step:
    """The metrics and the loss of one micro-batch."""
    log_ratio = i.current - i.old
    coefficient = exp(row_means(log_ratio, single(i.mask)) if s.importance_sampling_level == "sequence" else log_ratio)
    kl = _reference_kl(i, coefficient, s)
    weight, metrics = _weight(i, log_ratio, coefficient, s)
    loss = weight if i.kept is None else weight * single(i.kept)
    if s.top_entropy_quantile < 1 and i.entropy is not None:
        loss = loss * single(_high_entropy(i.entropy, i.mask, 1 - s.top_entropy_quantile))
    if i.ratio is not None and s.loss_type != "vespo":
        loss = loss * i.ratio
    if kl is not None:
        loss = loss + single(s.beta) * kl
        metrics["kl"] = _global_mean(kl, i.mask)
    if i.entropy is not None:
        metrics["entropy"] = _global_mean(i.entropy, i.mask)
    return Step(metrics, _reduced(loss, i.mask, s, window))


def _weight(i: Inputs, log_ratio: Singles, coefficient: Singles, s: Settings) -> tuple[Singles, dict[str, float]]:
    """The policy loss per token (or per sequence) before any mask or ratio, and its clip shares."""
    if s.loss_type in CLIPPED_LOSSES:
        bounded = coefficient if s.delta is None else np.minimum(coefficient, single(s.delta))
        clipped = np.clip(coefficient, 1 - s.epsilon, 1 + s.clip_high)
        return -np.minimum(bounded * i.advantages, clipped * i.advantages), _clip_shares(i, bounded, s)
    if s.loss_type == "cispo":
        over = (coefficient > s.clip_high) & (i.advantages > 0)
        loss = -np.minimum(coefficient, single(s.clip_high)) * i.advantages * i.current
        return loss, {"cispo_clip_ratio": _global_mean(single(over), i.mask)}
    if s.loss_type == "sapo":
        tau = single(np.where(i.advantages > 0, s.sapo_temperature_pos, s.sapo_temperature_neg))
        gate = single(1) / (1 + exp(-tau * (coefficient - 1))) * 4 / tau
        return -single(gate) * i.advantages, {}
    phi = _gamma_weight(i, log_ratio, s)
    return -phi * i.advantages * i.current, {"vespo/phi_seq_mean": _global_mean(phi, i.mask)}


def _clip_shares(i: Inputs, coefficient: Singles, s: Settings) -> dict[str, float]:
    low = (coefficient < 1 - s.epsilon) & (i.advantages < 0)
    high = (coefficient > 1 + s.clip_high) & (i.advantages > 0)
    shares = {"low_mean": low, "high_mean": high, "region_mean": low | high}
    means = {f"clip_ratio/{name}": _global_mean(single(share), i.mask) for name, share in shares.items()}
    lows, highs = (_share_of_rows(single(share), i.mask) for share in (low, high))
    return means | {
        "clip_ratio/low_min": min(lows, default=math.nan),
        "clip_ratio/high_max": max(highs, default=math.nan),
    }


def _share_of_rows(values: Singles, mask: Booleans) -> list[float]:
    """The mean of each row with tokens, or all values if there is already one per sequence."""
    if values.shape[1] == 1:
        return [float(value) for value in values[:, 0]]
    full = mask.any(axis=1)
    return [float(value) for value in row_means(values, single(mask))[full, 0]]


def _gamma_weight(i: Inputs, log_ratio: Singles, s: Settings) -> Singles:
    """VESPO's e^(lambda - lambda w) w^k. w is the sequence's PPO ratio times the importance ratios of all its positions."""
    lowest = math.log(1e-8)
    log_weight = row_totals(np.clip(log_ratio, -20, 20) * single(i.mask))
    if i.ratio is not None:
        log_weight = log_weight + row_totals(np.clip(log(i.ratio), lowest, 20))
    log_weight = np.clip(log_weight, lowest, 20)
    positive = i.advantages >= 0
    k = np.where(positive, s.vespo_k_pos, s.vespo_k_neg)
    rate = np.maximum(np.where(positive, s.vespo_lambda_pos, s.vespo_lambda_neg), 1e-4)
    phi = exp(single(rate + k * log_weight - rate * exp(log_weight)))
    return single(np.where(np.isfinite(phi), phi, 0.0))


def _reference_kl(i: Inputs, coefficient: Singles, s: Settings) -> Singles | None:
    """K3 of the reference over current per token; use_bias_correction_kl weighs it by the PPO ratio."""
    if s.beta == 0 or i.reference is None:
        return None
    gap = i.reference - i.current
    return single(k3(gap) * coefficient) if s.use_bias_correction_kl else k3(gap)


def _high_entropy(entropy: Singles, mask: Booleans, quantile: float) -> Booleans:
    values = entropy[mask]
    if not values.size:
        return np.zeros_like(mask)
    return (entropy >= single(np.quantile(values.astype(np.float64), quantile))) & mask


def _global_mean(values: Singles, mask: Booleans) -> float:
    """The mean over all unmasked tokens, or over all sequences (empty ones included) if there is one value per sequence.

    TRL assumes one value per sequence if there is one column, so it treats completions of one token in the same way.
    """
    if values.shape[1] == 1:
        return total(values) / len(values)
    return float(single(total(values * single(mask))) / single(max(int(mask.sum()), 1)))


def _reduced(loss: Singles, mask: Booleans, s: Settings, window: Accumulation) -> float:
    """This micro-batch's part of the loss of the accumulation window."""
    loss = np.broadcast_to(loss, mask.shape)
    whole = total(loss * single(mask))
    if s.loss_type in ("cispo", "dapo", "vespo"):
        return whole / max(window.tokens, 1)
    if s.loss_type in ("grpo", "sapo"):
        value = float(row_means(loss, single(mask)).mean(dtype=np.float64))
    elif s.loss_type == "bnpo":
        value = whole / max(int(mask.sum()), 1)
    elif s.loss_type == "dr_grpo":
        value = whole / (len(mask) * (s.max_completion_length or mask.shape[1]))
    else:
        value = float(row_totals(loss * single(mask)).mean(dtype=np.float64))
    return value / window.micro_batches
