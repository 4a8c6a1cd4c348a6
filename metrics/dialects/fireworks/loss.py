"""The Fireworks cookbook's client-side losses: the loss of each token of one datum (one sequence), and its statistics."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from ratioscope.arrays import Array, Singles

from ..single_precision import dual_clip, exp, k3, mean, single, total
from .settings import Settings

SAFETY_CLAMP = 20.0


@dataclass(frozen=True)
class Datum:
    """One sequence's response tokens: arrays of one dimension in float32."""

    rollout: Singles
    raw: Singles | None
    """The sampler's raw log-probs; None if the sampler sent none."""
    old: Singles
    current: Singles
    reference: Singles | None
    """None without a reference model."""
    active: Array
    """Whether each token is in the loss."""
    advantage: Singles
    """One value; for igpo one per token."""
    tis: Singles
    """The TIS weight; 1 at inactive tokens."""

    @property
    def mask(self) -> Singles:
        """1.0 at active tokens, else 0.0."""
        return single(self.active)


@dataclass(frozen=True)
class Loss:
    """The loss of one datum and its statistics."""

    per_token: Singles
    """Zero at inactive tokens."""
    means: dict[str, float] = field(default_factory=dict)
    """Values that are averaged over datums."""
    sums: dict[str, float] = field(default_factory=dict)
    """Values that are added over datums and divided by the active tokens of the chunk."""
    coefficient: float | None = None
    """The mean factor of d(log-prob) in the gradient. GRPO reports its variance over datums."""


def tis_weight(old: Singles, rollout: Singles, s: Settings) -> tuple[Singles, dict[str, float]]:
    """The weight of each active token of one datum, and its metrics."""
    log_ratio = np.clip(old - rollout, -SAFETY_CLAMP, SAFETY_CLAMP)
    raw = exp(log_ratio)
    if s.level == "sequence":
        raw = np.broadcast_to(exp(single([mean(log_ratio)])), log_ratio.shape)
    # Two steps: pull request 169 allows an upper bound below the lower one, for which np.clip is undefined.
    weight = np.minimum(np.maximum(raw, single(0.0)), single(s.cap))
    metrics = {"tis/clip_frac": mean(weight != raw)}
    if s.icepop_threshold is not None:
        kept = (raw >= 1 / s.icepop_threshold) & (raw <= s.icepop_threshold)
        weight = single(np.where(kept, weight, 0.0))
        metrics["tis/icepop_clip_frac"] = mean(~kept)
    if s.level == "sequence":
        metrics["tis/seq_ratio"] = float(raw[0])
    return weight, {"tis/weight_mean": mean(weight), **metrics}


def _ratio(d: Datum, s: Settings) -> Singles:
    return exp(np.clip(d.current - d.old, -s.ratio_log_cap, s.ratio_log_cap))


def _clipped(ratio: Singles, s: Settings) -> Singles:
    return np.clip(ratio, 1 - s.eps_clip, 1 + s.clip_high)


def _grpo(d: Datum, s: Settings) -> Loss:
    ratio = exp(np.clip(d.current - d.old, -SAFETY_CLAMP, SAFETY_CLAMP))
    clipped = _clipped(ratio, s)
    plain, bounded = -ratio * d.advantage, -clipped * d.advantage
    inside = (ratio >= 1 - s.eps_clip) & (ratio <= 1 + s.clip_high)
    moving = single(np.where((plain >= bounded) | inside, ratio, 0.0))
    loss = np.maximum(plain, bounded) * d.tis
    sums = {"mean_adv_loss": total(-d.advantage * d.current * d.mask)}
    if d.reference is not None:
        penalty = single(s.kl_beta) * k3(d.reference - d.current)
        sums["mean_kl_penalty"] = total(penalty * d.mask)
        loss = loss + penalty
    return Loss(
        loss * d.mask,
        {"ppo_clip_frac": mean((clipped != ratio)[d.active]), "ppo_ratio_mean": mean(ratio[d.active])},
        sums,
        mean((-d.advantage * moving * d.tis * d.mask)[d.active]),
    )


def _gspo(d: Datum, s: Settings) -> Loss:
    """GSPO. The mean log-ratio of the sequence includes inactive tokens."""
    at_zero = d.current - d.current  # carries the gradient in the cookbook; NaN where current is not finite
    ratio = exp(np.minimum(at_zero + single(mean(d.current - d.old)), single(s.seq_ratio_log_cap)))
    loss = np.maximum(-ratio * d.advantage, -_clipped(ratio, s) * d.advantage) * d.tis * d.mask
    return Loss(loss, {"gspo_clip_frac": mean(_clipped(ratio, s) != ratio), "ppo_ratio_mean": mean(ratio)})


def _dapo(d: Datum, s: Settings) -> Loss:
    ratio = _ratio(d, s)
    clipped = _clipped(ratio, s)
    loss = np.maximum(-ratio * d.advantage, -clipped * d.advantage)
    if s.eps_clip_c is not None:
        loss = dual_clip(loss, d.advantage, s.eps_clip_c)
    return Loss(
        single(loss) * d.tis * d.mask, {"dapo_clip_frac": mean(clipped != ratio), "ppo_ratio_mean": mean(ratio)}
    )


def _dppo(d: Datum, s: Settings) -> Loss:
    """DPPO. No gradient where the token moved from old as its advantage asks, and its probability by more than the threshold."""
    ratio, distance = _ratio(d, s), _divergence(exp(d.old), exp(d.current), s)
    beyond = (np.sign(d.advantage) * np.sign(ratio - 1) > 0) & (distance > single(s.dppo_threshold))
    numbers = {"dppo_mask_frac": single(beyond), "dppo_divergence_mean": distance, "ppo_ratio_mean": ratio}
    loss = -ratio * d.advantage * single(~beyond) * d.tis * d.mask
    return Loss(loss, {name: mean(each[d.active]) for name, each in numbers.items()})


def _divergence(p: Singles, q: Singles, s: Settings) -> Singles:
    """Between the token and all others as one: total variation, or KL(old || current) with probabilities cut off near 0 and 1."""
    if s.divergence == "binary_tv":
        return single(np.abs(p - q))
    epsilon = np.finfo(np.float32).eps
    p, q = (np.clip(each, epsilon, 1 - epsilon) for each in (p, q))
    return single(p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q)))


def _cispo(d: Datum, s: Settings) -> Loss:
    ratio = _ratio(d, s)
    clipped = _clipped(ratio, s)
    means = {"cispo_clip_frac": mean(clipped != ratio), "ppo_ratio_mean": mean(ratio)}
    return Loss(-(clipped * d.current * d.advantage) * d.tis * d.mask, means)


def _importance_sampling(d: Datum, s: Settings) -> Loss:
    ratio = _ratio(d, s)
    return Loss(-(ratio * d.advantage) * d.tis * d.mask, {"is_ratio_mean": mean(ratio)})


def _dro(d: Datum, s: Settings) -> Loss:
    square = single(np.where(d.advantage != 0, np.square(d.current - d.old), 0.0))
    penalty = single(single(0.5 * s.beta) * square)
    loss = single(-(d.current * d.advantage * d.tis - penalty) * d.mask)
    return Loss(loss, sums={"dro_quad_penalty": total(penalty * d.mask)})


def _reinforce(d: Datum, s: Settings) -> Loss:
    """REINFORCE with the weight exp(current - rollout), not clipped. The TIS weight is logged, not used."""
    ratio = exp(np.clip(d.current - d.rollout, -SAFETY_CLAMP, SAFETY_CLAMP))
    loss = -ratio * d.advantage
    beta = single(s.kl_beta)
    if d.reference is not None and s.kl_beta > 0:
        loss = loss + beta * (d.current - d.reference)
    sums = {"mean_adv_loss": total(-d.advantage * ratio * d.mask), "mean_kl_penalty": total(beta * d.current * d.mask)}
    return Loss(loss * d.mask, {"is_ratio_mean": mean(ratio[d.active])}, sums)


def _igpo(d: Datum, s: Settings) -> Loss:
    """IGPO: one advantage per token; the weight is exp(old - rollout) without a cap."""
    ratio = exp(np.clip(d.current - d.old, -SAFETY_CLAMP, SAFETY_CLAMP))
    clipped = np.clip(ratio, 1 - s.eps_clip, 1 + s.eps_clip)
    loss = np.maximum(-ratio * d.advantage, -clipped * d.advantage) * d.tis
    if d.reference is not None:
        loss = loss + single(s.kl_beta) * (d.current - d.reference)
    return Loss(loss * d.mask)


POLICY_LOSSES: dict[str, Callable[[Datum, Settings], Loss]] = {
    "grpo": _grpo,
    "gspo": _gspo,
    "dapo": _dapo,
    "dppo": _dppo,
    "cispo": _cispo,
    "importance_sampling": _importance_sampling,
    "dro": _dro,
    "reinforce": _reinforce,
    "igpo": _igpo,
}

MEANS = {
    "grpo": ("ppo_clip_frac", "ppo_ratio_mean"),
    "gspo": ("gspo_clip_frac", "ppo_ratio_mean"),
    "dapo": ("dapo_clip_frac", "ppo_ratio_mean"),
    "dppo": ("dppo_mask_frac", "dppo_divergence_mean", "ppo_ratio_mean"),
    "cispo": ("cispo_clip_frac", "ppo_ratio_mean"),
    "importance_sampling": ("is_ratio_mean",),
    "reinforce": ("is_ratio_mean",),
}
"""Loss -> its metrics that are averaged over datums; 0 if every datum is empty."""

SUMS = {"grpo": ("mean_adv_loss",), "dro": ("dro_quad_penalty",), "reinforce": ("mean_adv_loss", "mean_kl_penalty")}
"""Loss -> its metrics that are divided by the active tokens; 0 without any."""

COUNTED = ("grpo", "reinforce", "igpo")
"""Losses that report active_tokens, total_resp_tokens and mask_ratio."""
