"""AReaL's proximal (old) log-probs, given or approximated; the behaviour weight with its bounds; M2PO's mask."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Singles
from ratioscope.errors import SchemaError

from ..single_precision import exp, log, row_totals, single
from .settings import Rejection, Settings


@dataclass(frozen=True)
class Policies:
    """The log-probs of one micro-batch in float32, and the versions of its tokens."""

    rollout: Singles
    current: Singles
    given: Singles | None
    """The proximal log-probs of a forward pass; None if AReaL skipped it."""
    versions: Array | None
    """The weight version that sampled each token; -1 for prompt and tool tokens. None if the batch has none."""
    version: int | None
    """The engine's version when the update starts; None if the batch has none."""


def proximal(p: Policies, settings: Settings) -> Singles:
    """The proximal log-probs that the loss uses.

    SchemaError if any is NaN or infinite, masked or not, because the trainer stops there.
    """
    if settings.prox_logp_method == "reuse_train_logp":
        old = p.current
    elif p.given is not None:
        old = p.given
    else:
        old = approximations(p)["loglinear"]
    if not np.isfinite(old).all():
        row, position = np.argwhere(~np.isfinite(old))[0]
        raise SchemaError(
            f"the old (proximal) log-prob at row {row}, position {position} is {old[row, position]}; AReaL stops the "
            f"run there, even where the token is masked (prox_logp_method {settings.prox_logp_method!r})"
        )
    return old


def approximations(p: Policies) -> dict[str, Singles]:
    """Interpolations between rollout (alpha 0) and current (alpha 1), by how far the two versions are apart.

    With v the current version and u the token's: alpha = (v - 1 - u) / (v - u) for v > u >= 0, else 0.
    """
    if p.versions is None or p.version is None:
        raise SchemaError("an approximated old policy needs 'versions' (rows, positions) and 'current_version'")
    behind = single(p.version) - single(p.versions)
    alpha = np.where((behind > 0) & (p.versions >= 0), (behind - 1) / behind, 0.0)
    alpha = single(np.clip(single(alpha), 0, 1))
    probability = single((1 - alpha) * exp(p.rollout) + alpha * exp(p.current))
    return {
        "loglinear": single(p.rollout + alpha * (p.current - p.rollout)),
        "linear": log(probability + single(1e-10)),
        "rollout": p.rollout,
    }


@dataclass(frozen=True)
class Behave:
    """The behaviour weight of one micro-batch, and the tokens that it leaves."""

    weight: Singles
    """Zero outside `loss_mask`."""
    kept: Booleans
    """The tokens of `loss_mask` with a weight above 0."""
    loss_mask: Booleans
    """The tokens that rejection leaves. The older generations reject by a weight of 0 and leave the mask unchanged."""
    filtered: float | None = None
    """Share of the valid tokens that are rejected or clamped; None in the older generations."""


def behave(old: Singles, rollout: Singles, loss_mask: Booleans, settings: Settings) -> Behave:
    """The weight in the generation of the settings. Infinite and NaN log-ratios count as 0 from 1.0.4 on."""
    if settings.rejection is not None:
        return _rejected(old, rollout, loss_mask, settings.rejection)
    log_ratio, mode, cap = old - rollout, settings.behave_imp_weight_mode, settings.behave_imp_weight_cap
    weight = exp(row_means(log_ratio, loss_mask) if "sequence" in mode else log_ratio)
    weight = np.broadcast_to(weight, log_ratio.shape)
    if cap is not None and "truncate" in mode:
        weight = np.clip(weight, 0.0, cap)
    elif cap is not None:
        weight = single(np.where(weight > cap, 0.0, weight))
    weight = single(np.where(loss_mask, weight, 0.0))
    return Behave(weight, (weight > 0) & loss_mask, loss_mask)


def _rejected(old: Singles, rollout: Singles, loss_mask: Booleans, r: Rejection) -> Behave:
    log_ratio = old - rollout
    log_ratio = single(np.where(np.isfinite(log_ratio), log_ratio, 0.0))
    per_sequence_weight = r.level == "sequence" and r.metric == "ratio"
    weight = exp(row_means(log_ratio, loss_mask) if per_sequence_weight else log_ratio)
    weight = np.broadcast_to(weight, log_ratio.shape)
    if per_sequence_weight:
        metric = exp(_aggregate(log_ratio, loss_mask, r.agg))
    else:
        metric = _metric(old, rollout, log_ratio, r)
        metric = metric if r.level == "token" else _aggregate(metric, loss_mask, r.agg)
    inside = np.broadcast_to((metric <= r.upper) & (r.lower is None or metric >= r.lower), log_ratio.shape)
    if r.action == "mask":
        left = loss_mask & inside
        changed = loss_mask & ~inside
    else:
        clamped = np.clip(weight, 0.0 if r.lower is None else r.lower, r.upper)
        bounded = single(np.where(inside, weight, clamped)) if r.level == "sequence" else clamped
        left, changed, weight = loss_mask, loss_mask & (bounded != weight), bounded
    weight = single(np.where(left, weight, 0.0))
    return Behave(weight, (weight > 0) & left, left, float(changed.sum() / max(loss_mask.sum(), 1)))


def _metric(old: Singles, rollout: Singles, log_ratio: Singles, r: Rejection) -> Singles:
    """The value per token that is compared with the bounds. Only metric `ratio` counts a log-ratio that is not finite as 0."""
    raw = old - rollout
    if r.metric == "ratio":
        return exp(log_ratio)
    if r.metric == "kl_k1":
        return raw
    if r.metric == "kl_k2":
        return single(np.square(raw) / 2)
    if r.metric == "kl_k3":
        return single(exp(-raw) - 1 + raw)
    return np.maximum(_bernoulli_kl(old, rollout), _bernoulli_kl(rollout, old))


def _bernoulli_kl(log_p: Singles, log_q: Singles) -> Singles:
    """KL between two Bernoulli distributions: the token or any other (KPop)."""
    p, q = (np.clip(exp(each), 1e-8, 1 - 1e-8) for each in (log_p, log_q))
    return single(p * log(p / q) + (1 - p) * log((1 - p) / (1 - q)))


def _aggregate(values: Singles, mask: Booleans, agg: str) -> Singles:
    """The mean, sum or maximum over each row's valid tokens, (rows, 1); 0 for a row without any."""
    if agg == "mean":
        return row_means(values, mask)
    if agg == "sum":
        return row_totals(np.where(mask, values, 0.0))
    highest = np.where(mask, values, -np.inf).max(axis=1, keepdims=True)
    return single(np.where(mask.any(axis=1, keepdims=True), highest, 0.0))


def row_means(values: Singles, mask: Booleans) -> Singles:
    """Mean over the valid tokens of each row, (rows, 1); 0 for a row without any."""
    return single(row_totals(np.where(mask, values, 0.0)) / np.maximum(mask.sum(axis=1, keepdims=True), 1))


def m2po(old: Singles, rollout: Singles, loss_mask: Booleans, threshold: float) -> Booleans:
    """The loss mask without the tokens of largest (rollout - old)^2, until the mean of the rest is below the threshold.

    One token always stays. Among equal values the earlier token is dropped first; AReaL does not define the order.
    """
    values = np.square(rollout - old)[loss_mask]
    if not values.size:
        return loss_mask
    order = np.argsort(-values, kind="stable")  # NaN last
    order = np.roll(order, np.isnan(values).sum())  # NaN first, as in AReaL
    descending = values[order].astype(np.float64)
    suffix = single(np.cumsum(descending[::-1])[::-1])
    below = np.flatnonzero(suffix / single(np.arange(values.size, 0, -1)) < threshold)
    dropped = int(below[0]) if below.size else values.size - 1
    kept = np.ones(values.size, bool)
    kept[order[:dropped]] = False
    left = np.zeros_like(loss_mask)
    left[loss_mask] = kept
    return left
