"""verl's rejection from 0.7.1 on: tokens or rows with a K1, K2 or K3 outside its bounds leave the mask.

K1 is rollout minus trainer. Its bounds are the logs of the configured pair, so the pair bounds rollout / trainer.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Reals
from ratioscope.errors import SchemaError

from .settings import Rejection, VerlSettings
from .weights import (
    LogRatio,
    any_in_row,
    bounded,
    exp,
    importance_weights,
    log_ratio,
    mean,
    row_means,
    row_sums,
    sample_std,
    token_mean,
    token_std,
)


def reject_by_divergence(ratio: LogRatio, rejections: tuple[Rejection, ...]) -> tuple[Booleans, dict[str, float]]:
    """The mask after all options, and their `rollout_rs_` metrics. Every option uses the mask before rejection."""
    kept = np.ones_like(ratio.mask)
    metrics: dict[str, float] = {}
    for rejection in rejections:
        keeps, statistics = _judged(ratio, rejection)
        kept &= keeps
        metrics |= {f"rollout_rs_{rejection.option}_{name}": value for name, value in statistics.items()}
        metrics["rollout_rs_masked_fraction"] = token_mean(~kept, ratio.mask)
    metrics["rollout_rs_seq_masked_fraction"] = mean(any_in_row(ratio.mask & ~kept))
    return ratio.mask & kept, metrics


def _judged(ratio: LogRatio, rejection: Rejection) -> tuple[Booleans, dict[str, float]]:
    """(the tokens that one option keeps, (rows, positions); its metrics). No option keeps NaN."""
    per, kind = rejection.option.rsplit("_", 1)
    mask, low, high = ratio.mask, None, rejection.upper
    if rejection.lower is not None:
        low, high = math.log(rejection.lower), math.log(high)
    exact, own = (_DIVERGENCE[kind](bounded(x)) for x in (ratio.exact, ratio.own))  # per token, (rows, positions)
    if per != "token":
        exact, own = (_OVER_ROW[per](x, mask) for x in (exact, own))  # per row, (rows,)
    keeps = own <= high
    if low is not None:
        keeps &= own >= low
    tokens_keep = np.broadcast_to(keeps.reshape(len(mask), -1), mask.shape)
    filled = any_in_row(mask)
    metrics = _summary(exact, own, mask, low, high)
    metrics["masked_fraction"] = token_mean(~tokens_keep, mask)
    metrics["seq_masked_fraction"] = mean(any_in_row(mask & ~tokens_keep)[filled])
    return tokens_keep, metrics


def _summary(exact: Reals, own: Reals, mask: Booleans, low: float | None, high: float) -> dict[str, float]:
    """The metrics of one option. Means run over tokens, even for a row's statistic.

    Extremes and shares run over tokens for a token option, else over rows with a valid token.
    """
    filled = any_in_row(mask)
    by_token = exact.ndim == 2
    per_token = exact if by_token else np.broadcast_to(exact[:, None], mask.shape)
    rows, own_rows = (row_means(exact, mask), row_means(own, mask)) if by_token else (exact, own)
    rows, own_rows = rows[filled], own_rows[filled]
    judged, judged_own = (exact[mask], own[mask]) if by_token else (rows, own_rows)
    summary = {
        "mean": token_mean(per_token, mask),
        "max": float(judged.max()),
        "min": float(judged.min()),
        "fraction_high": mean(judged_own > high),
        "fraction_low": 0.0 if low is None else mean(judged_own < low),
        "std": token_std(np.clip(per_token, 0.0 if low is None else low, high), mask),
        "seq_mean": mean(rows),
        "seq_std": sample_std(rows),
        "seq_max": float(rows.max()),
        "seq_min": float(rows.min()),
        "seq_max_deviation": float(np.abs(rows).max()),
        "seq_fraction_high": mean(own_rows > high),
    }
    if low is not None:
        summary["seq_fraction_low"] = mean(own_rows < low)
    return summary


def _row_maxima(values: Reals, mask: Booleans) -> Array:
    largest = np.where(mask, values, -np.inf).max(axis=1)
    return np.where(largest == -np.inf, 0.0, largest).astype(values.dtype)


_DIVERGENCE: Mapping[str, Callable[[Reals], Reals]] = {
    "k1": lambda x: -x,
    "k2": lambda x: 0.5 * np.square(x),
    "k3": lambda x: exp(x) - 1.0 - x,
}
_OVER_ROW: Mapping[str, Callable[[Reals, Booleans], Reals]] = {
    "seq_sum": row_sums,
    "seq_mean": row_means,
    "seq_max": _row_maxima,
}


@dataclass(frozen=True)
class CorrectedBatch:
    """The correction of one batch."""

    metrics: dict[str, float]
    """verl's full metric name -> value."""
    weights: Array | None
    """None if the settings form no weights."""
    mask: Booleans
    """The tokens that rejection leaves."""


def corrected_batch(train: Reals, rollout: Reals, mask: Booleans, settings: VerlSettings) -> CorrectedBatch:
    """Weights and rejection from the trainer's log-probs against the rollout's, (rows, positions).

    Both use the mask before rejection, so rejection changes neither the weights nor their metrics.
    """
    some_valid(mask)
    ratio = log_ratio(train, rollout, mask)
    weights, metrics = (None, {}) if settings.is_level is None else importance_weights(ratio, settings)
    if settings.rejections:
        mask, rejected = reject_by_divergence(ratio, settings.rejections)
        metrics = metrics | rejected
    named = {f"rollout_corr/{name}": value for name, value in metrics.items()}
    return CorrectedBatch(named | off_policy_metrics(train, rollout, ratio.mask), weights, mask)


def some_valid(mask: Booleans) -> None:
    """SchemaError for a mask without a valid token; verl raises too."""
    if not mask.any():
        raise SchemaError("'mask' has no valid token in the whole batch; verl's correction needs at least one")


def off_policy_metrics(train: Reals, rollout: Reals, mask: Booleans) -> dict[str, float]:
    """The thirteen `rollout_corr/` metrics of a trainer's log-probs against the rollout's, (rows, positions).

    Means over rows include rows without a valid token; their mean log-prob is 0. chi-squared can be negative.
    """
    ratio = log_ratio(train, rollout, mask)
    x = ratio.exact
    train_mean, rollout_mean = (row_means(each.astype(np.float64), mask) for each in (train, rollout))
    ppl_gap = rollout_mean - train_mean
    return {
        "rollout_corr/training_ppl": mean(np.exp(-train_mean)),
        "rollout_corr/training_log_ppl": mean(-train_mean),
        "rollout_corr/kl": token_mean(-x, mask),
        "rollout_corr/k3_kl": token_mean(np.exp(x) - x - 1, mask),
        "rollout_corr/rollout_ppl": mean(np.exp(-rollout_mean)),
        "rollout_corr/rollout_log_ppl": mean(-rollout_mean),
        "rollout_corr/log_ppl_diff": mean(ppl_gap),
        "rollout_corr/log_ppl_abs_diff": mean(np.abs(ppl_gap)),
        "rollout_corr/log_ppl_diff_max": float(ppl_gap.max()),
        "rollout_corr/log_ppl_diff_min": float(ppl_gap.min()),
        "rollout_corr/ppl_ratio": mean(np.exp(ppl_gap)),
        "rollout_corr/chi2_token": token_mean(np.square(np.exp(bounded(x))), mask) - 1.0,
        "rollout_corr/chi2_seq": mean(np.exp(2.0 * bounded(row_sums(x, mask)))) - 1.0,
    }


def probability_metrics(old: Reals, rollout: Reals, mask: Booleans) -> dict[str, float]:
    """The `training/` metrics: abs(exp(old) - exp(rollout)) and the Pearson correlation over valid tokens.

    NaN for the std and the correlation of one token, the correlation of constant probabilities, and every value of an empty mask.
    """
    p, q = (np.exp(each.astype(np.float64))[mask] for each in (old, rollout))
    distance = np.abs(p - q)
    names = ("diff_max", "diff_mean", "diff_std")
    values = (
        (distance.max(), distance.mean(), distance.std(ddof=1) if distance.size > 1 else math.nan)
        if distance.size
        else (math.nan,) * 3
    )
    return {
        "training/rollout_probs_diff_valid": float(distance.size > 0),
        **{f"training/rollout_probs_{name}": float(value) for name, value in zip(names, values, strict=True)},
        "training/rollout_actor_probs_pearson_corr": _correlation(p, q),
    }


def _correlation(p: Reals, q: Reals) -> float:
    """Pearson's correlation, in [-1, 1]; NaN for constant values, which are compared because rounding may give them variance."""
    if p.size < 2 or p.min() == p.max() or q.min() == q.max():
        return math.nan
    left, right = p - p.mean(), q - q.mean()
    return float(np.clip((left * right).sum() / np.sqrt(np.square(left).sum() * np.square(right).sum()), -1.0, 1.0))
