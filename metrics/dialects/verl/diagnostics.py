"""verl's metrics of two policies: `rollout_corr/...`, and `training/...`, which verl logs only if it recomputes old."""

import math

import numpy as np

from ratioscope.arrays import Booleans, Reals

from .ratio import bounded, log_ratio, mean, row_means, row_sums, token_mean


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
    values = (distance.max(), distance.mean(), _spread(distance)) if distance.size else (math.nan,) * 3
    return {
        "training/rollout_probs_diff_valid": float(distance.size > 0),
        **{f"training/rollout_probs_{name}": float(value) for name, value in zip(names, values, strict=True)},
        "training/rollout_actor_probs_pearson_corr": _correlation(p, q),
    }


def _spread(values: Reals) -> float:
    return float(values.std(ddof=1)) if values.size > 1 else math.nan


def _correlation(p: Reals, q: Reals) -> float:
    """Pearson's correlation, in [-1, 1]; NaN for constant values, which are compared because rounding may give them variance."""
    if p.size < 2 or p.min() == p.max() or q.min() == q.max():
        return math.nan
    left, right = p - p.mean(), q - q.mean()
    return float(np.clip((left * right).sum() / np.sqrt(np.square(left).sum() * np.square(right).sum()), -1.0, 1.0))
