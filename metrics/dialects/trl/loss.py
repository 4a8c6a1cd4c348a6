"""TRL's GRPO losses: what `_compute_loss` logs and returns for one micro-batch."""

import math
from dataclasses import dataclass

import numpy as np

from ..evaluation import Mask
from ..single_precision import Single, exp, log, row_totals, single, total
from .settings import CLIPPED_LOSSES, Settings


@dataclass(frozen=True)
class Inputs:
    """One micro-batch in float32, (rows, positions); `advantages` (rows, 1) or per token; `ratio` the importance-sampling
    ratio, (rows, 1) or per token, None without correction; `kept` the off-policy mask, None without one."""

    old: Single
    current: Single
    mask: Mask
    advantages: Single
    ratio: Single | None
    kept: Mask | None
    entropy: Single | None
    reference: Single | None


@dataclass(frozen=True)
class Accumulation:
    """The accumulation window of a micro-batch: its number of micro-batches and of unmasked tokens."""

    micro_batches: int
    tokens: int


@dataclass(frozen=True)
class Step:
    """Metrics of one micro-batch, NaN where it has nothing to average, and its part of the loss."""

    metrics: dict[str, float]
    loss: float


def micro_step(i: Inputs, s: Settings, window: Accumulation) -> Step:
    """One call of the loss."""
    log_ratio = i.current - i.old
    coefficient = exp(_mean_of_rows(log_ratio, i.mask) if s.importance_sampling_level == "sequence" else log_ratio)
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


def _weight(i: Inputs, log_ratio: Single, coefficient: Single, s: Settings) -> tuple[Single, dict[str, float]]:
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


def _clip_shares(i: Inputs, coefficient: Single, s: Settings) -> dict[str, float]:
    low = (coefficient < 1 - s.epsilon) & (i.advantages < 0)
    high = (coefficient > 1 + s.clip_high) & (i.advantages > 0)
    shares = {"low_mean": low, "high_mean": high, "region_mean": low | high}
    found = {f"clip_ratio/{name}": _global_mean(single(share), i.mask) for name, share in shares.items()}
    lows, highs = (_share_of_rows(single(share), i.mask) for share in (low, high))
    return found | {
        "clip_ratio/low_min": min(lows, default=math.nan),
        "clip_ratio/high_max": max(highs, default=math.nan),
    }


def _share_of_rows(values: Single, mask: Mask) -> list[float]:
    """One value a row; rows without tokens have none, unless the values are one a sequence already."""
    if values.shape[1] == 1:
        return [float(value) for value in values[:, 0]]
    full = mask.any(axis=1)
    return [float(value) for value in _mean_of_rows(values, mask)[full, 0]]


def _gamma_weight(i: Inputs, log_ratio: Single, s: Settings) -> Single:
    """VESPO's e^(lambda - lambda w) w^k of the sequence weight w, the importance-sampling ratio of every position in it."""
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


def _reference_kl(i: Inputs, coefficient: Single, s: Settings) -> Single | None:
    """K3 of the reference over current, weighted by the PPO ratio with use_bias_correction_kl."""
    if s.beta == 0 or i.reference is None:
        return None
    gap = i.reference - i.current
    kl = single(exp(gap) - gap - 1)
    return single(kl * coefficient) if s.use_bias_correction_kl else kl


def _high_entropy(entropy: Single, mask: Mask, quantile: float) -> Mask:
    values = entropy[mask]
    if not values.size:
        return np.zeros_like(mask)
    return (entropy >= single(np.quantile(values.astype(np.float64), quantile))) & mask


def _mean_of_rows(values: Single, mask: Mask) -> Single:
    return single(row_totals(values * single(mask)) / np.maximum(mask.sum(axis=1, keepdims=True), 1))


def _global_mean(values: Single, mask: Mask) -> float:
    """Over all unmasked tokens; of one value a sequence, over all sequences, empty ones included.

    The trainer tells the two apart by the number of columns: completions of one token are taken for sequences.
    """
    if values.shape[1] == 1:
        return total(values) / len(values)
    return float(single(total(values * single(mask))) / single(max(int(mask.sum()), 1)))


def _reduced(loss: Single, mask: Mask, s: Settings, window: Accumulation) -> float:
    """This micro-batch's part of the loss of the accumulation window."""
    loss = np.broadcast_to(loss, mask.shape)
    whole = total(loss * single(mask))
    if s.loss_type in ("cispo", "dapo", "vespo"):
        return whole / max(window.tokens, 1)
    if s.loss_type in ("grpo", "sapo"):
        value = float(_mean_of_rows(loss, mask).mean(dtype=np.float64))
    elif s.loss_type == "bnpo":
        value = whole / max(int(mask.sum()), 1)
    elif s.loss_type == "dr_grpo":
        value = whole / (len(mask) * (s.max_completion_length or mask.shape[1]))
    else:
        value = float(row_totals(loss * single(mask)).mean(dtype=np.float64))
    return value / window.micro_batches
