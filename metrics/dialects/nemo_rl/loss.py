"""NeMo-RL's clipped policy-gradient loss: its metrics for one micro-batch, and the driver's sums over micro-batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Singles

from ..single_precision import dual_clip, exp, log, single, total
from .settings import Settings
from .weights import EPSILON, Tensors, Weights, masked_row_means


@dataclass(frozen=True)
class Denominators:
    """The denominators of the metrics, from the whole global batch."""

    tokens: float
    """Valid tokens."""
    sequences: float
    """Valid sequences. A sequence counts even if all its tokens are masked."""


def loss_metrics(t: Tensors, weights: Weights, settings: Settings, count: Denominators) -> dict[str, float]:
    """The metrics of the loss for one micro-batch: its sums, divided by the denominators of all micro-batches."""
    tokens = _mean_over(t.mask, count.tokens)
    ratio, clamped = _ratios(t, settings)
    kl = _reference_kl(t, settings, count)
    nll = 0.0  # the mean of -log-prob over the tokens of rewarded samples of this micro-batch
    if settings.positive_example_nll_weight > 0 and t.rewards is not None:
        correct = t.mask * single(t.rewards > 0).reshape(-1, 1)
        nll = _mean_over(correct, total(correct))(-t.current) if correct.any() else 0.0
    applied = weights.value if settings.use_importance_sampling_correction else np.ones_like(weights.value)
    actor = _reduced(applied * _clipped_loss(t, ratio, clamped, settings), t, settings, count)
    mixture = log(single((exp(t.old) + exp(t.rollout)) / 2))
    return {
        "loss": actor + kl + settings.positive_example_nll_weight * nll,
        "probs_ratio": tokens(ratio),
        "probs_ratio_clamped": tokens(clamped),
        **_extremes("probs_ratio", ratio, t),
        **_extremes("probs_ratio_clamped", clamped, t),
        "kl_penalty": kl / settings.reference_policy_kl_penalty if kl else 0.0,
        "token_mult_prob_error": tokens(exp(np.abs(t.rollout - t.old) * t.mask)),
        "gen_kl_error": tokens(_kl(t.old - t.rollout, settings.reference_policy_kl_type)),
        "policy_kl_error": tokens(_kl(t.rollout - t.old, settings.reference_policy_kl_type)),
        "js_divergence_error": tokens(single((_kl(t.old - mixture, "k3") + _kl(t.rollout - mixture, "k3")) / 2)),
        "sampling_importance_ratio": _logged_weight(t, weights, settings, count),
        "num_valid_samples": total(t.sample_mask),
        "approx_entropy": -tokens(exp(t.current - t.rollout) * t.current),
        **_out_of_bounds(t, weights, settings, count),
        **({} if settings.version == "pr2269" else {"positive_nll_loss": nll}),
    }


def summed(parts: Sequence[dict[str, float]]) -> dict[str, float]:
    """The driver's reduction over micro-batches: sums, and extremes of the finite values (-1 without any)."""
    values = {name: [part[name] for part in parts] for name in parts[0]}
    finite = {name: [value for value in values[name] if not np.isinf(value)] for name in values}
    extremes = {name: min(finite[name], default=-1.0) for name in values if name.endswith("_min")}
    extremes |= {name: max(finite[name], default=-1.0) for name in values if name.endswith("_max")}
    return {name: sum(values[name]) for name in values} | extremes


def _mean_over(mask: Singles, count: float) -> Callable[[Singles], float]:
    denominator = single(count) + single(EPSILON)
    return lambda values: float(single(total(values * mask)) / denominator)


def _kl(log_ratio: Singles, kind: str) -> Singles:
    """Per-token estimator of a divergence; `log_ratio` is later minus earlier."""
    if kind == "k1":
        return -log_ratio
    return single(np.square(log_ratio) / 2 if kind == "k2" else exp(log_ratio) - 1 - log_ratio)


def _ratios(t: Tensors, s: Settings) -> tuple[Singles, Singles]:
    """PPO ratio before and after its clip; with disable_ppo_ratio both are the current log-prob."""
    if s.force_on_policy_ratio:
        one = exp(t.current - t.current)  # NaN where current is not finite, as in NeMo-RL
        return one, one
    if s.disable_ppo_ratio:
        return t.current, t.current
    log_ratio = t.current - t.old
    if s.sequence_level_importance_ratios:
        log_ratio = np.broadcast_to(masked_row_means(log_ratio, t.token_mask), log_ratio.shape)
    ratio = exp(log_ratio)
    return ratio, np.clip(ratio, 1 - s.ratio_clip_min, 1 + s.ratio_clip_max)


def _clipped_loss(t: Tensors, ratio: Singles, clamped: Singles, s: Settings) -> Singles:
    if s.use_cispo:
        return single(-t.advantages * clamped * t.current)
    loss = single(np.maximum(-t.advantages * ratio, -t.advantages * clamped))
    return loss if s.ratio_clip_c is None else dual_clip(loss, t.advantages, s.ratio_clip_c)


def _reduced(values: Singles, t: Tensors, s: Settings, count: Denominators) -> float:
    """Mean over tokens, or over sequences of their means over tokens."""
    if s.token_level_loss:
        return _mean_over(t.mask, count.tokens)(values)
    return _mean_over(t.sample_mask, count.sequences)(masked_row_means(values, t.token_mask))


def _reference_kl(t: Tensors, s: Settings, count: Denominators) -> float:
    """The KL term of the loss; 0 if its coefficient is 0, if the reward contains the KL, or without a reference."""
    if t.reference is None or s.use_kl_in_reward or s.reference_policy_kl_penalty == 0:
        return 0.0
    log_ratio = _clamped(t.reference - t.current, s.kl_input_clamp_value)
    kl, weight = _kl(log_ratio, s.reference_policy_kl_type), np.ones_like(t.current)
    if s.version != "pr2269" or s.use_on_policy_kl_approximation:
        weight = exp(t.current - (t.rollout if s.use_on_policy_kl_approximation else t.current))
        weight = single(np.where(np.isfinite(weight), weight, 0.0))
    if s.version == "pr2269":
        weighted = weight * _clamped(kl, s.kl_output_clamp_value)
    else:
        weighted = _clamped(weight * kl, s.kl_output_clamp_value)
    return _reduced(single(s.reference_policy_kl_penalty) * weighted, t, s, count)


def _clamped(values: Singles, bound: float | None) -> Singles:
    return values if bound is None else np.clip(values, -bound, bound)


def _logged_weight(t: Tensors, weights: Weights, s: Settings, count: Denominators) -> float:
    """Mean of the weight after truncation.

    At a sequence level NeMo-RL multiplies (rows, 1) with (rows,), which broadcasts to (rows, rows). Its sum is then the sum of
    all weights times the number of valid samples. Pull request 3753 fixes this.
    """
    if s.level == "token":
        return _mean_over(t.mask, count.tokens)(weights.value)
    sample_mask = t.sample_mask if s.version == "pr3753" else t.sample_mask.T
    return _mean_over(sample_mask, count.sequences)(weights.value)


def _out_of_bounds(t: Tensors, weights: Weights, s: Settings, count: Denominators) -> dict[str, float]:
    """Share outside the bounds.

    Pull request 2269 takes 1 - share inside in every micro-batch, so the sum over k micro-batches is k - share inside.
    """
    if weights.outside is None:
        return {}
    per_sequence = s.truncation == "seq-mask-tis"
    share = _mean_over(t.sample_mask, count.sequences) if per_sequence else _mean_over(t.mask, count.tokens)
    if s.version != "pr2269":
        return {"is_oob_ratio": share(single(weights.outside))}
    # In pull request 2269 the lower bound of tis is always 0, and no weight is below 0.
    return {"is_oob_ratio": 1.0 - share(single(~weights.outside))}


def _extremes(name: str, values: Singles, t: Tensors) -> dict[str, float]:
    valid = values[t.mask > 0]
    if not valid.size:
        return {f"{name}_min": np.inf, f"{name}_max": -np.inf}
    return {f"{name}_min": float(valid.min()), f"{name}_max": float(valid.max())}
