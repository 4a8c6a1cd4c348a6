"""AReaL's actor losses (PPO, CISPO, SAPO) and their statistics for one micro-batch."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Singles

from ..single_precision import exp, single, total
from .behave import Behave, row_means
from .settings import Settings
from .tracker import Record


@dataclass(frozen=True)
class Surrogate:
    """The policy loss of each token and its parts."""

    loss: Singles
    """The loss before the behaviour weight."""
    ratio: Singles
    """The PPO ratio current / old."""
    clipped: Booleans
    """The tokens that the clip changed."""
    dual_clipped: Booleans
    """The tokens that the dual clip changed."""
    gates: dict[str, Singles]
    """SAPO's gates under AReaL's names; empty for other losses."""


def surrogate(
    current: Singles, old: Singles, advantages: Singles, mask: Booleans, left: Booleans, s: Settings
) -> Surrogate:
    """The loss of the settings. `mask`: tokens before rejection, `left`: after it. Up to 1.0.4 rejected tokens have ratio 0."""
    log_ratio = current - old
    if s.use_cispo_loss:
        return _cispo(exp(log_ratio), current, advantages, left, s)
    if s.importance_sampling_level == "sequence":
        ratio = np.where(left, exp(row_means(log_ratio, left)), 0.0)
        advantages = single(np.where(left, row_means(advantages, left), 0.0))
    elif s.use_sapo_loss:
        ratio = exp(log_ratio)
    else:
        ratio = np.where(mask if s.generation.development else left, exp(log_ratio), 0.0)
    counted = mask if s.generation.development else left
    return (_sapo if s.use_sapo_loss else _ppo)(single(ratio), advantages, counted, s)


def _ppo(ratio: Singles, advantages: Singles, counted: Booleans, s: Settings) -> Surrogate:
    bounded = np.clip(ratio, 1 - s.eps_clip, 1 + (s.eps_clip if s.eps_clip_higher is None else s.eps_clip_higher))
    plain, clipped = -advantages * ratio, -advantages * bounded
    loss = np.maximum(plain, clipped)
    dual_clipped = np.zeros(ratio.shape, bool)
    if s.c_clip is not None:
        dual = np.sign(advantages) * single(s.c_clip) * advantages
        loss, dual_clipped = np.minimum(loss, dual), dual < loss
    return Surrogate(single(loss), ratio, (plain < clipped) & counted, dual_clipped & counted, {})


def _cispo(ratio: Singles, current: Singles, advantages: Singles, left: Booleans, s: Settings) -> Surrogate:
    """CISPO never zeroes a loss: `clipped` marks the tokens whose ratio is outside the band."""
    bounded = np.clip(ratio, 1 - s.eps_clip, 1 + (s.eps_clip_higher or 0.0))
    loss = single(-bounded * advantages * current)
    return Surrogate(loss, ratio, (bounded != ratio) & left, np.zeros(ratio.shape, bool), {})


def _sapo(ratio: Singles, advantages: Singles, counted: Booleans, s: Settings) -> Surrogate:
    positive, negative = (_gate(ratio, tau) for tau in (s.sapo_tau_pos, s.sapo_tau_neg))
    gate = single(np.where(advantages > 0, positive, negative))
    none = np.zeros(ratio.shape, bool)
    gates = {"sapo_soft_gate": gate, "sapo_scaled_gate_pos": positive, "sapo_scaled_gate_neg": negative}
    return Surrogate(-gate * advantages, ratio, none, none, gates)


def _gate(ratio: Singles, tau: float) -> Singles:
    return single(single(1) / (1 + exp(single(-tau) * (ratio - 1))) * single(4 / tau))


@dataclass(frozen=True)
class Inputs:
    """The arrays of the metrics that do not come from the surrogate."""

    rollout: Singles
    old: Singles
    current: Singles
    entropy: Array
    inside: Booleans
    """The positions that are not padding."""


def record_loss(
    record: Record, i: Inputs, mask: Booleans, step: Surrogate, behave: Behave | None, s: Settings
) -> float:
    """Records the loss's statistics and returns the loss.

    The loss is a sum over the tokens that rejection leaves, divided by the valid tokens before it: rejection does not raise
    the weight of the other tokens.
    """
    loss = step.loss if behave is None else single(step.loss * behave.weight)
    left = mask if behave is None else behave.loss_mask
    record.counts |= {"n_tokens": i.inside, "n_valid_tokens": mask}
    record.counts |= {"clipped_tokens": step.clipped, "dual_clipped_tokens": step.dual_clipped}
    record.stat(mask, importance_weight=step.ratio, approx_kl=i.current - i.old, actor_loss=loss)
    record.stat(mask, new_logp=i.current, old_logp=i.rollout, entropy=i.entropy)
    record.stat(mask, clip_ratio=single(step.clipped), dual_clip_ratio=single(step.dual_clipped))
    if s.use_sapo_loss:
        record.stat(mask, "", **step.gates)
    else:
        record.stat(step.clipped, clipped_new_logp=i.current, clipped_old_logp=i.rollout)
    if behave is not None:
        _record_behave(record, i, behave)
    if s.generation.development:
        _record_development(record, i, mask, behave, s)
    return total(np.where(left, loss, 0.0)) / max(int(mask.sum()), 1)


def _record_behave(record: Record, i: Inputs, behave: Behave) -> None:
    record.counts["unclipped_behave_tokens"] = behave.kept
    record.stat(behave.kept, behave_imp_weight=behave.weight, behave_approx_kl=i.old - i.rollout)
    if behave.filtered is not None:
        record.scalars["rs_filtered_fraction"] = behave.filtered


def _record_development(record: Record, i: Inputs, mask: Booleans, behave: Behave | None, s: Settings) -> None:
    """The metrics of AReaL's main branch since 1.0.4. A NaN outside the mask does not count."""
    gap = i.rollout - i.current
    record.stat(mask, logp_diff=gap, logp_abs_diff=np.abs(gap))
    if behave is not None:
        record.stat(mask, behave_filtered_ratio=single(mask & ~behave.kept))
    if not (s.use_cispo_loss or s.use_sapo_loss):
        valid, tokens = int(mask.sum()), int(i.inside.sum())
        record.scalars |= {"n_total_tokens": tokens, "n_valid_tokens_in_loss": valid, "n_masked_tokens": tokens - valid}
        record.scalars["masked_token_ratio"] = 1 - valid / max(tokens, 1)
