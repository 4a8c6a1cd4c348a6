"""verl's rejection from 0.7.1 on: tokens or rows with a K1, K2 or K3 outside its bounds leave the mask.

K1 is rollout minus trainer. Its bounds are the logs of the configured pair, so the pair bounds rollout / trainer.
"""

import math
from collections.abc import Callable, Mapping

import numpy as np

from ratioscope.arrays import Array, Booleans, Reals

from .ratio import LogRatio, any_in_row, bounded, exp, mean, row_means, row_sums, sample_std, token_mean, token_std
from .settings import Rejection


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
    mask, (low, high) = ratio.mask, _limits(rejection)
    exact, own = (_statistic(x, mask, per, kind) for x in (ratio.exact, ratio.own))
    keeps = own <= high
    if low is not None:
        keeps &= own >= low
    tokens_keep = np.broadcast_to(keeps.reshape(len(mask), -1), mask.shape)
    filled = any_in_row(mask)
    metrics = _summary(exact, own, mask, low, high)
    metrics["masked_fraction"] = token_mean(~tokens_keep, mask)
    metrics["seq_masked_fraction"] = mean(any_in_row(mask & ~tokens_keep)[filled])
    return tokens_keep, metrics


def _limits(rejection: Rejection) -> tuple[float | None, float]:
    if rejection.lower is None:
        return None, rejection.upper
    return math.log(rejection.lower), math.log(rejection.upper)


def _statistic(x: Reals, mask: Booleans, per: str, kind: str) -> Reals:
    """The divergence per token, (rows, positions), for a token option; per row, (rows,), for a sequence option."""
    tokens = _DIVERGENCE[kind](bounded(x))
    return tokens if per == "token" else _OVER_ROW[per](tokens, mask)


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
