"""AReaL: `ppo_actor/update/*` metrics, the behaviour weight, M2PO and the versions of tokens.

AReaL's names: logprobs = rollout (behaviour), prox_logp = old (proximal), theta = current. A metric is an average over all
valid tokens of all micro-batches and ranks. A metric with an empty denominator is left out, not zero.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Singles

from ..batch import DialectBatch, selected
from ..evaluation import Call, Evaluation, Needs, evaluator
from ..single_precision import single
from .correction import write
from .loss import Inputs, Record, exported, record_loss, record_proximal, record_versions, surrogate
from .settings import VERSIONS, Settings, parse
from .weights import Policies, behave, m2po, proximal

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]

PRESETS: dict[str, dict[str, Any]] = {
    "off": {"rejection_sampling": None},
    "token-mask": {"rejection_sampling": {"level": "token", "action": "mask", "metric": "ratio", "upper": 5.0}},
    "token-clamp": {"rejection_sampling": {"level": "token", "action": "clamp", "metric": "ratio", "upper": 5.0}},
    "m2po": {"rejection_sampling": None, "m2_threshold": 0.04},
}
"""For 1.0.4. `token-mask` is the setting that AReaL's warning recommends to users of the former default. `m2po` has the values
of the example that AReaL ships."""

CANONICAL: dict[str, str | None] = {
    "ppo_actor/update/behave_imp_weight/avg": "mismatch/mean_weight_token",
    "ppo_actor/update/behave_approx_kl/avg": "mismatch/mean_log_ratio",
    "ppo_actor/update/behave_approx_kl/max": "mismatch/max_log_ratio",
    "ppo_actor/update/behave_approx_kl/min": "mismatch/min_log_ratio",
    "ppo_actor/update/compute_logp/kl_div_direct/avg": "total/kl_direct",
    "ppo_actor/update/compute_logp/kl_div_taylor/avg": "total/kl_k2",
    "ppo_actor/update/compute_logp/kl_div_dual/avg": "total/kl_k3",
    "ppo_actor/update/approx_kl/avg": "drift/mean_log_ratio",
    "ppo_actor/update/importance_weight/avg": None,
    "ppo_actor/update/rs_filtered_fraction": None,
    "ppo_actor/update/n_valid_tokens": "mismatch/tokens",
}

_RECOMPUTED = (
    "so it includes the policy update; rejected tokens do not count; without use_decoupled_loss, where log-probs are recomputed, "
    "of old instead of rollout"
)
NOTES: dict[str, str] = {
    "ppo_actor/update/behave_imp_weight/avg": "only with rejection_sampling, after the clamp, over the tokens whose weight is "
    "still above 0: it does not show how large the rejected weights were; by ratio at level sequence each token has its "
    "sequence's geometric mean",
    "ppo_actor/update/behave_approx_kl/avg": "old minus rollout over the kept tokens, only with rejection_sampling: estimates "
    "-KL(rollout || old)",
    **{
        f"ppo_actor/update/behave_approx_kl/{each}": "of the kept tokens, only with rejection_sampling"
        for each in ("max", "min")
    },
    "ppo_actor/update/approx_kl/avg": "current minus old: positive means that current gives the tokens more probability",
    "ppo_actor/update/importance_weight/avg": "in 1.0.4 rejected tokens count as 0: it is (1 - filtered share) * mean",
    "ppo_actor/update/rs_filtered_fraction": "a mean over micro-batches, however many tokens each has",
    "ppo_actor/update/compute_logp/kl_div_direct/avg": f"compares rollout with current of each minibatch, {_RECOMPUTED}",
    "ppo_actor/update/compute_logp/kl_div_taylor/avg": f"K2 of current over rollout, {_RECOMPUTED}",
    "ppo_actor/update/compute_logp/kl_div_dual/avg": f"K3 of current over rollout, {_RECOMPUTED}",
    "ppo_actor/update/version_stats/sample_staleness_theta_avg": "a mean over micro-batches; versions are read one position "
    "late, so the first token of each generated segment is left out",
    "ppo_actor/update/entropy/avg": "ratioscope evaluates it as 0 if the batch has no entropy",
    "ppo_actor/update/loss": "our name for the value that the loss function returns; AReaL does not log it",
}


_LOSS = ("loss", "actor_loss/*", "clip_ratio/*", "dual_clip_ratio/*", "clipped_*", "dual_clipped_*")
_NEEDS = {
    "current_logprobs": (*_LOSS, "importance_weight/*", "approx_kl/*", "new_logp/*", "sapo_*", "logp_*", "*kl_div_*"),
    "advantages": (*_LOSS, "sapo_soft_gate/*"),
}


@dataclass(frozen=True)
class _Part:
    """The results of one micro-batch."""

    record: Record
    loss: float
    """The loss of the micro-batch."""
    tokens: int
    """Valid tokens before any filter."""
    arrays: dict[str, Array]
    """Arrays under the trainer's names."""


def _update(call: Call[Settings]) -> Evaluation:
    """The metrics and weights of AReaL for one update.

    It also reads from `extra`: `versions` (rows, positions) with -1 at prompt and tool tokens, `current_version`,
    `sample_mask`, `entropy`. A version belongs to the token whose log-prob has the same position; a `kind` that contains
    "versions_unshifted" reads versions one position late, as the trainer does. `weights`: the behaviour weight, None if the
    settings form none. `mask`: the tokens that keep a weight; without weights, the tokens that M2PO keeps.
    """
    batch, groups = call.batch, call.groups()
    parts = [_micro_batch(selected(batch, rows), call.settings, call.kind or "") for rows in groups]
    # The engine weighs micro-batches by their valid tokens before any filter.
    losses = {"loss": sum(part.loss * part.tokens for part in parts) / max(sum(part.tokens for part in parts), 1)}
    # Rows that no micro-batch has are zero.
    whole = {name: np.zeros(batch.shape, value.dtype) for name, value in parts[0].arrays.items()}
    for rows, part in zip(groups, parts, strict=True):
        for name, value in part.arrays.items():
            whole[name][rows] = value
    return Evaluation(
        metrics=exported([part.record for part in parts]) | losses,
        weights=whole.get("behave_imp_weight"),
        mask=whole.get("behave_mask", whole["loss_mask"]),
        warnings=() if "entropy" in batch.extra else ("the batch has no entropy: its metrics are 0",),
        losses=losses,
        arrays=whole,
    )


def _micro_batch(batch: DialectBatch, s: Settings, kind: str) -> _Part:
    sampled = batch.mask & (np.asarray(batch.extra.get("sample_mask", np.ones(len(batch.mask)))) > 0)[:, None]
    p = _policies(batch, s, kind)
    old = proximal(p, s)
    mask = sampled if s.m2_threshold is None else m2po(old, p.rollout, sampled, s.m2_threshold)
    weights = behave(old, p.rollout, mask, s) if s.weighted else None
    left, kept = (mask, mask) if weights is None else (weights.loss_mask, weights.kept)
    step = surrogate(p.current, old, single(batch.needed("advantages")), mask, left, s)
    entropy = single(batch.extra.get("entropy", np.zeros(batch.shape)))
    inside = np.arange(batch.shape[1]) < batch.lengths[:, None]
    record = Record()
    loss = record_loss(record, Inputs(p.rollout, old, p.current, entropy, inside), mask, step, weights, s)
    record_proximal(record, p, kept, s)
    record_versions(record, p, kept)
    arrays: dict[str, Array] = {"loss_mask": mask, "prox_logp": old}
    arrays["importance_weight"] = np.where(mask, step.ratio, single(0))
    if weights is not None:
        arrays |= {"behave_imp_weight": weights.weight, "behave_mask": weights.kept}
    return _Part(record, loss, int(sampled.sum()), arrays)


def _policies(batch: DialectBatch, s: Settings, kind: str) -> Policies:
    """The log-probs of the loss. Without the decoupled loss, old is rollout; if log-probs are recomputed, rollout is old."""
    rollout, current = single(batch.needed("rollout_logprobs")), single(batch.needed("current_logprobs"))
    versions, version = batch.extra.get("versions"), batch.extra.get("current_version")
    if versions is not None and "versions_unshifted" in kind:
        versions = np.concatenate([np.full_like(versions[:, :1], -1), versions[:, :-1]], axis=1)
    given: Singles | None
    if s.prox_logp_method == "reuse_train_logp":
        given = current
    elif s.decoupled:
        given = None if s.prox_logp_method == "loglinear" else single(batch.needed("old_logprobs"))
    else:
        given = rollout = single(batch.needed("old_logprobs")) if s.recompute_logprob else rollout
    return Policies(rollout, current, given, versions, None if version is None else int(version))


def _needs(s: Settings) -> Needs:
    return {} if s.prox_logp_method in ("loglinear", "metrics", "reuse_train_logp") else _NEEDS


evaluate = evaluator(parse, _update, "ppo_actor/update/", _needs)
