"""Fireworks cookbook: `train/*` metrics of its client-side losses and the TIS weight between old and rollout.

One datum is one sequence. A metric is a mean over the active tokens of each datum, then a plain mean over the datums that
have any, so a short answer counts as much as a long one. The loss is a sum.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..batch import DialectBatch
from ..evaluation import Call, Evaluation, evaluator
from ..single_precision import exp, k3, mean, single, total
from .correction import write
from .loss import COUNTED, MEANS, POLICY_LOSSES, SUMS, Datum, Loss, tis_weight
from .settings import VERSIONS, Settings, parse

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write", "Loss"]

PRESETS: dict[str, dict[str, Any]] = {
    "default": {"tis": {}},
    "sequence": {"tis": {"level": "sequence"}},
    "icepop": {"tis": {"icepop_threshold": 2.0}},
    "anchor-rollout": {"tis": {}, "anchor_logp": "rollout"},
}

CANONICAL: dict[str, str | None] = {
    "train/tis/weight_mean": "mismatch/mean_weight_token",
    "train/inference_k3": "total/kl_k3",
    "train/inference_k1": "total/mean_log_ratio",
    "train/ppo_kl": None,
    "train/ppo_ratio_mean": None,
    "train/tis/clip_frac": None,
    "train/active_tokens": "mismatch/tokens",
}

NOTES: dict[str, str] = {
    "train/tis/weight_mean": "after cap and icepop; a mean over sequences of means over tokens, not a mean over tokens; at level "
    "sequence of each sequence's geometric mean",
    "train/tis/clip_frac": "counted before icepop: a token above the cap counts even if icepop then zeroes it",
    "train/inference_k1": "current minus rollout: positive means that the trainer gives the tokens more probability; it "
    "estimates -KL(rollout || current) and includes the policy update",
    "train/inference_k3": "compares rollout's raw log-probs with current, not with old, so it includes the policy update. "
    "Until 2026-07-06 (as inference_kld) it compared current with behaviour log-probs",
    "train/ppo_kl": "K3 of current over old on samples of the rollout policy; it is not the KL to the reference policy",
    "train/ppo_ratio_mean": "over all response tokens, masked ones included, except in GRPO; in GSPO of each sequence's "
    "geometric mean",
    "train/mask_ratio": "the share of tokens that are active, not the share that is masked",
    "train/loss_sum": "our name for the value that the closure returns: a sum over tokens and sequences; not logged",
}


_LOSS = ("loss_sum", "mean_loss", "mean_adv_loss", "policy_gradient/*", "dro_quad_penalty")
_NEEDS = {
    "current_logprobs": (*_LOSS, "ppo_*", "*po_clip_frac", "is_ratio_mean", "mean_kl*", "ref_kl", "*inference_*"),
    "advantages": _LOSS,
}


def _step(call: Call[Settings]) -> Evaluation:
    """The metrics and weights of the cookbook for one optimizer step; micro-batches are its chunks.

    It also reads from `extra`: `sample_mask` (rows,), which makes all tokens of a row inactive; `raw_rollout_logprobs`, the
    sampler's raw log-probs, NaN in rows without any (default: the behaviour log-probs); `reference_logprobs`. A row's first
    advantage is used for the whole row, but igpo takes one per token. `weights`: the TIS weight, zero at inactive tokens.
    reinforce logs this weight without using it.
    """
    settings, arrays = call.settings, call.batch
    if "reference_logprobs" not in arrays.extra:
        settings = replace(settings, kl_beta=0.0)
    active = arrays.mask & (single(arrays.extra.get("sample_mask", np.ones(len(arrays.mask)))) > 0.5)[:, None]
    datums = [_datum(arrays, active[row], row, settings) for row in range(len(active))]
    weights = np.zeros(active.shape, np.float32)
    for row, (datum, _) in enumerate(datums):
        weights[row, active[row]] = datum.tis[datum.active]
    chunks = [_chunk([datums[row] for row in rows], settings) for rows in call.groups()]
    losses = {} if settings.loss == "server" else {"loss_sum": sum(loss for _, loss in chunks)}
    filtering = settings.icepop_threshold is not None and settings.loss not in ("reinforce", "igpo")
    return Evaluation(
        metrics=_over_chunks([metrics for metrics, _ in chunks]) | losses,
        weights=weights,
        mask=active & (weights > 0) if filtering else active,
        losses=losses,
        arrays={"tis_weight": weights, "server_advantages": single(arrays.needed("advantages"))[:, :1] * weights},
    )


def _datum(arrays: DialectBatch, active: Array, row: int, s: Settings) -> tuple[Datum, dict[str, float]]:
    """One row, and the metrics of its TIS weight. igpo reads a missing reference as 0; its mean_kl is then the mean log-prob."""
    part = np.arange(len(active)) < arrays.lengths[row]
    rollout = single(arrays.needed("rollout_logprobs")[row, part])
    raw, reference = (arrays.extra.get(name) for name in ("raw_rollout_logprobs", "reference_logprobs"))
    old = rollout if s.anchor_logp == "rollout" else single(arrays.needed("old_logprobs")[row, part])
    counted = active[part]
    tis, metrics = np.ones(counted.size, np.float32), dict[str, float]()
    if s.loss == "igpo":
        tis = exp(np.clip(old - rollout, -20.0, 20.0))
    elif counted.any():
        tis[counted], metrics = tis_weight(old[counted], rollout[counted], s)
    advantages = single(arrays.needed("advantages"))[row]
    if reference is None and s.loss == "igpo":
        reference = np.zeros(arrays.shape, np.float32)
    datum = Datum(
        rollout=rollout,
        raw=rollout if raw is None else None if np.isnan(raw[row]).all() else single(raw[row, part]),
        old=old,
        current=single(arrays.needed("current_logprobs")[row, part]),
        reference=None if reference is None else single(reference[row, part]),
        active=counted,
        advantage=advantages[part] if s.loss == "igpo" else advantages[:1],
        tis=tis,
    )
    return datum, metrics


def _chunk(datums: Sequence[tuple[Datum, dict[str, float]]], s: Settings) -> tuple[dict[str, float], float]:
    """Metrics and loss of one forward and backward call. Datums without an active token are left out."""
    full = [(datum, logged) for datum, logged in datums if datum.active.any()]
    if s.loss == "server":
        return {}, 0.0
    losses = [POLICY_LOSSES[s.loss](datum, s) for datum, _ in full]
    loss = total(np.array([total(each.per_token) for each in losses]))
    active = sum(int(datum.active.sum()) for datum, _ in full)
    metrics = _averages([logged for _, logged in full], len(full)) if s.loss != "igpo" else {}
    if full and s.loss != "igpo":
        metrics["ppo_kl"] = _average(mean(k3((d.current - d.old)[d.active])) for d, _ in full)
    count = max(len(full), 1)
    names = set(SUMS.get(s.loss, ())) | {name for each in losses for name in each.sums}
    sums = {name: sum(each.sums[name] for each in losses) / active if active else 0.0 for name in sorted(names)}
    metrics |= {name: sum(each.means[name] for each in losses) / count for name in MEANS.get(s.loss, ())} | sums
    if s.loss in COUNTED:
        response = sum(datum.active.size for datum, _ in full)
        metrics |= {"active_tokens": active, "total_resp_tokens": response}
        metrics["mask_ratio"] = active / response if response else 0.0
    if s.loss in ("grpo", "reinforce"):
        metrics["mean_loss"] = loss / active if active else 0.0
    if s.loss == "grpo":
        metrics |= _variance([each.coefficient or 0.0 for each in losses]) | _inference([d for d, _ in full])
    return metrics | _reference([d for d, _ in full], active, s), loss


def _average(values: Iterable[float]) -> float:
    items = list(values)
    return sum(items) / len(items)


def _averages(logged: Sequence[Mapping[str, float]], count: int) -> dict[str, float]:
    """Each name's sum over datums, divided by the count; no names if there are no datums."""
    return {name: sum(each[name] for each in logged) / count for name in (logged[0] if logged else ())}


def _variance(coefficients: Sequence[float]) -> dict[str, float]:
    """Unbiased variance over datums of the mean coefficient -A * ratio * w: a cheap measure of the gradient's noise."""
    count = len(coefficients)
    if not count:
        return {}
    values = np.array(coefficients)
    squares = float((single(values) ** 2).sum(dtype=np.float64))
    variance = max((squares - float(values.sum()) ** 2 / count) / (count - 1), 0.0) if count > 1 else 0.0
    prefix = "policy_gradient/"
    return {
        f"{prefix}coefficient_variance_proxy": variance,
        f"{prefix}estimator_variance_proxy": variance / count,
        f"{prefix}estimator_std_error_proxy": (variance / count) ** 0.5,
        f"{prefix}sample_count": count,
    }


def _inference(datums: Sequence[Datum]) -> dict[str, float]:
    """The metrics of current against the sampler's raw log-probs; empty if no datum has raw log-probs."""
    gaps = [(d.current - d.raw)[d.active] for d in datums if d.raw is not None]
    if not gaps:
        return {}
    return {
        "raw_inference_logprob_coverage": sum(gap.size for gap in gaps) / sum(int(d.active.sum()) for d in datums),
        "inference_k1": _average(map(mean, gaps)),
        "inference_k3": _average(mean(k3(gap)) for gap in gaps),
    }


def _reference(datums: Sequence[Datum], tokens: int, s: Settings) -> dict[str, float]:
    """KL against the reference model; empty without one. igpo always reports its own KL."""
    pairs = [(d, d.reference) for d in datums if d.reference is not None]
    total_kl = sum(total((d.current - reference) * d.mask) for d, reference in pairs)
    if s.loss == "igpo":
        return {"mean_kl": total_kl / tokens if tokens else 0.0}
    if not pairs:
        return {}
    return {"mean_kl": total_kl / tokens, "ref_kl": _average(mean(k3((r - d.current)[d.active])) for d, r in pairs)}


def _over_chunks(chunks: Sequence[dict[str, float]]) -> dict[str, float]:
    """The metrics of one optimizer step: counts are added, other values averaged over the chunks that have them."""
    metrics: dict[str, float] = {}
    for name in dict.fromkeys(name for chunk in chunks for name in chunk):
        values = [chunk[name] for chunk in chunks if name in chunk]
        metrics[name] = sum(values) / (1 if name in ("active_tokens", "total_resp_tokens") else len(values))
    if metrics.get("total_resp_tokens"):
        metrics["mask_ratio"] = metrics["active_tokens"] / metrics["total_resp_tokens"]
    return metrics


evaluate = evaluator(parse, _step, "train/", lambda settings: _NEEDS)
