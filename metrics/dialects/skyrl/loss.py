"""SkyRL's policy losses per token, before the correction, and their metrics.

In the formulas cur, old and rollout are log-probs: of the policy with gradient, of the forward pass before training, of the
engine. A is the scaled advantage. q is the ratio exp(cur - old), its log-ratio clamped to +-20 unless said otherwise. sg stops
the gradient.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import needed
from ..single_precision import dual_clip, exp, row_means, single, total
from .settings import Settings
from .weights import Rounded, Tokens, masked_mean


@dataclass(frozen=True)
class TokenLoss:
    """The loss of one micro-batch before the correction."""

    loss: Array
    """Per token, (rows, positions)."""
    metrics: dict[str, float]
    rollout_weights: Array | None = None
    """The factor that exp(cur - rollout) gives each token; None if the loss is not anchored on rollout."""


def token_loss(tokens: Tokens, settings: Settings) -> TokenLoss:
    """The loss of `policy_loss_type`, per token, before off_policy_correction."""
    return LOSSES[settings.policy_loss_type](tokens, settings)


def _surrogates(ratio: Array, advantages: Array, settings: Settings, rounded: Rounded) -> tuple[Array, Array]:
    """(q A, clamp(q, 1 - low, 1 + high) A). The clamp decides the loss of a token if the second is smaller."""
    low, high = rounded(1 - settings.eps_clip_low), rounded(1 + settings.eps_clip_high)
    return ratio * advantages, np.clip(ratio, low, high) * advantages


def _clipped(ratio: Array, tokens: Tokens, settings: Settings, rounded: Rounded) -> TokenLoss:
    advantages = needed(tokens, "advantages", settings.policy_loss_type)
    plain, clamped = _surrogates(ratio, advantages, settings, rounded)
    return TokenLoss(-np.minimum(plain, clamped), {"clip_ratio": masked_mean(clamped < plain, tokens.mask)})


def _regular(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-min(q A, clamp(q, 1 - low, 1 + high) A)."""
    return _clipped(tokens.ratio("current", "old", settings.policy_loss_type), tokens, settings, tokens.rounded)


def _dual_clip(tokens: Tokens, settings: Settings) -> TokenLoss:
    """PPO with a loss of at most -c A for A < 0. `clip_ratio` does not count this second clip."""
    ppo = _regular(tokens, settings)
    return TokenLoss(dual_clip(ppo.loss, needed(tokens, "advantages", "dual_clip"), settings.clip_ratio_c), ppo.metrics)


def _gspo(tokens: Tokens, settings: Settings) -> TokenLoss:
    """PPO on each sequence's mean log-ratio, which is clamped at 10 and has no lower bound."""
    log_ratio = tokens.log_ratio("current", "old", "gspo")
    means = row_means(log_ratio, tokens.mask)
    ratio = np.broadcast_to(exp(np.minimum(means, single(10.0))), log_ratio.shape)
    return _clipped(ratio, tokens, settings, single)


def _cispo(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-A sg(clamp(q)) cur, with q against `cispo_anchor`, old or rollout."""
    ratio = tokens.ratio("current", settings.cispo_anchor, f"cispo with cispo_anchor={settings.cispo_anchor!r}")
    low, high = tokens.rounded(1 - settings.cispo_eps_clip_low), tokens.rounded(1 + settings.cispo_eps_clip_high)
    clamped = np.clip(ratio, low, high)
    active = ratio[tokens.mask > 0] if tokens.mask.any() else ratio
    metrics = {
        "clip_ratio": masked_mean((ratio < low) | (ratio > high), tokens.mask),
        "cispo/ratio_mean": masked_mean(ratio, tokens.mask),
        "cispo/ratio_clamped_mean": masked_mean(clamped, tokens.mask),
        "cispo/ratio_max": float(active.max()),
        "cispo/ratio_min": float(active.min()),
    }
    loss = -needed(tokens, "advantages", "cispo") * clamped * needed(tokens, "current", "cispo")
    return TokenLoss(loss, metrics, clamped if settings.anchors_on_rollout else None)


def _rollout_is(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-A sg(q) cur if 1 - low < q < 1 + high, else 0, with q = exp(cur - rollout)."""
    ratio = tokens.ratio("current", "rollout", "rollout_is")
    low, high = tokens.rounded(1 - settings.eps_clip_low), tokens.rounded(1 + settings.eps_clip_high)
    inside = (ratio > low) & (ratio < high)
    weights = np.where(inside, ratio, np.float32(0))
    loss = -(weights * needed(tokens, "advantages", "rollout_is") * needed(tokens, "current", "rollout_is"))
    return TokenLoss(loss, {"clip_ratio": masked_mean(~inside, tokens.mask)}, weights)


def _dppo(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-q A, or 0 if the probability moved further than delta in the direction of the advantage."""
    behaviour = "old" if tokens.rollout is None else "rollout"
    advantages = needed(tokens, "advantages", "dppo")
    low, high = tokens.rounded(settings.delta_low), tokens.rounded(settings.delta_high)
    moved, distance = _dppo_distance(tokens, behaviour, settings.dppo_type)
    beyond = ((advantages > 0) & (moved > 0) & (distance > high)) | ((advantages < 0) & (moved < 0) & (distance > low))
    weights = tokens.ratio("current", behaviour, "dppo") * single(~beyond)
    metrics = {"clip_ratio": masked_mean(beyond, tokens.mask)}
    return TokenLoss(-(weights * advantages), metrics, weights if behaviour == "rollout" else None)


def _dppo_distance(tokens: Tokens, behaviour: str, kind: str) -> tuple[Array, Array]:
    """(the token's probability now minus earlier, its distance: the absolute value, or KL of token against any other)."""
    rounded, current, earlier = tokens.rounded, needed(tokens, "current", "dppo"), needed(tokens, behaviour, "dppo")
    p, q = rounded(exp(earlier)), rounded(exp(current))
    moved = rounded(q - p)
    if kind == "binary_tv":
        return moved, np.abs(moved)
    epsilon = rounded(1e-8)
    others = rounded(rounded(rounded(1 - p) + epsilon) / rounded(rounded(1 - q) + epsilon))
    same = rounded(p * rounded(earlier - current))
    return moved, rounded(same + rounded(rounded(1 - p) * rounded(np.log(others))))


def _sapo(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-(4 / tau) sigmoid(tau (q - 1)) A, tau by the sign of A."""
    advantages = needed(tokens, "advantages", "sapo")
    ratio = tokens.ratio("current", "old", "sapo")
    tau = np.where(advantages > 0, single(settings.tau_pos), single(settings.tau_neg))
    gates = 4 / tau / (1 + exp(-tau * tokens.rounded(ratio - 1)))
    return TokenLoss(-gates * advantages, {"clip_ratio": 0.0})


def _importance_sampling(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-q A with q not clamped. The mean of q is nan if every token is masked."""
    ratio = _unclamped(tokens, settings)
    mean = float(np.float64(total(ratio * tokens.mask)) / np.float64(total(tokens.mask)))
    return TokenLoss(-(ratio * needed(tokens, "advantages", "importance_sampling")), {"importance_ratio": mean})


def _cross_entropy(tokens: Tokens, settings: Settings) -> TokenLoss:
    return TokenLoss(-needed(tokens, "current", settings.policy_loss_type), {"clip_ratio": 0.0})


def _kl_cov(tokens: Tokens, settings: Settings) -> TokenLoss:
    """-q A, plus a penalty |cur - old| on the share of valid tokens whose advantage and log-prob have the highest covariance.

    Among equal covariances (one advantage for all) torch's choice is not defined; here the first tokens get the penalty.
    """
    rounded, advantages = tokens.rounded, needed(tokens, "advantages", "kl_cov")
    penalty = rounded(settings.ppo_kl_coef * np.abs(tokens.log_ratio("current", "old", "kl_cov")))
    valid = np.flatnonzero(tokens.mask > 0)
    if valid.size:
        a, c = advantages.ravel()[valid], needed(tokens, "current", "kl_cov").ravel()[valid]
        agreement = (a - single(a.mean(dtype=np.float64))) * rounded(c - rounded(c.mean(dtype=np.float64)))
        count = max(1, int(valid.size * settings.kl_cov_frac))
        valid = valid[np.argsort(-agreement, kind="stable")[:count]]
    chosen = np.isin(np.arange(penalty.size), valid).reshape(penalty.shape)
    return TokenLoss(-advantages * _unclamped(tokens, settings) + penalty * chosen, {"clip_ratio": 0.0})


def _clip_cov(tokens: Tokens, settings: Settings) -> TokenLoss:
    """PPO without some tokens between two covariance bounds, which SkyRL draws at random: nan at these candidates."""
    mask, advantages = tokens.mask, needed(tokens, "advantages", "clip_cov")
    plain, clamped = _surrogates(_unclamped(tokens, settings), advantages, settings, tokens.rounded)
    current = needed(tokens, "current", "clip_cov")
    centred = tokens.rounded(current - single(masked_mean(current, mask)))
    covariance = (advantages - single(masked_mean(advantages, mask))) * centred
    between = (covariance > settings.clip_cov_lb) & (covariance < settings.clip_cov_ub)
    candidates = (mask > 0) & between & ~(clamped < plain)
    dropped = min(max(int(settings.clip_ratio * total(mask)), 1), int(candidates.sum()))
    left = np.float32(0 if dropped == candidates.sum() else np.nan)
    metrics = {"clip_ratio": dropped / max(total(mask), 1.0)}
    return TokenLoss(np.where(candidates, left, -np.minimum(plain, clamped)), metrics)


def _unclamped(tokens: Tokens, settings: Settings) -> Array:
    """The ratio exp(cur - old) with a log-ratio that is not clamped."""
    return tokens.rounded(exp(tokens.log_ratio("current", "old", settings.policy_loss_type)))


LOSSES: dict[str, Callable[[Tokens, Settings], TokenLoss]] = {
    "regular": _regular,
    "dual_clip": _dual_clip,
    "gspo": _gspo,
    "cispo": _cispo,
    "rollout_is": _rollout_is,
    "dppo": _dppo,
    "sapo": _sapo,
    "clip_cov": _clip_cov,
    "kl_cov": _kl_cov,
    "cross_entropy": _cross_entropy,
    "importance_sampling": _importance_sampling,
}
