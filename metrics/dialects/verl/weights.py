"""verl's importance weights and their metrics. The ratio rejection of older generations has the same metrics."""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Reals

from .ratio import (
    SAFETY_BOUND,
    LogRatio,
    any_in_row,
    bounded,
    exp,
    mean,
    row_means,
    row_sums,
    sample_std,
    token_mean,
    token_std,
)
from .settings import VerlSettings


@dataclass(frozen=True)
class Ratios:
    """Importance ratios per token, (rows, positions). At row level each token has its row's ratio."""

    exact: Reals
    """In float64."""
    own: Reals
    """In the dtype of the log-probs."""
    log_rows: tuple[Reals, Reals] | None
    """Each row's log-ratio before any clamp, (rows,), as (exact, own); None at token level."""


@dataclass(frozen=True)
class Band:
    """The bounds of a summary's shares, spread and effective sample size."""

    low: float
    """Ratios below count as low."""
    high: float
    """Ratios above count as high. The spread and the effective sample size clamp values to [clamp_low, high]."""
    clamp_low: float
    """The smallest value that is not clamped, see `high`."""


def ratios(ratio: LogRatio, level: str) -> Ratios:
    """exp of the log-ratio (token), of its row sum (sequence) or of its row mean (geometric), each clamped to +-20."""
    if level == "token":
        return Ratios(np.exp(bounded(ratio.exact)), exp(bounded(ratio.own)), None)
    over_rows = row_sums if level == "sequence" else row_means
    exact, own = over_rows(ratio.exact, ratio.mask), over_rows(ratio.own, ratio.mask)
    shape = ratio.mask.shape
    spread = [np.broadcast_to(exp(bounded(rows))[:, None], shape) for rows in (exact, own)]
    return Ratios(spread[0], spread[1], (exact, own))


def importance_weights(ratio: LogRatio, settings: VerlSettings) -> tuple[Array, dict[str, float]]:
    """(the weights that multiply verl's loss, their `rollout_is_` metrics).

    A weight is 0 at masked positions, except that truncation gives NaN for a NaN log-ratio there. Rejection sets no weight to 0.
    """
    assert settings.is_level is not None
    mask, upper = ratio.mask, settings.is_upper
    ratio_of_level = ratios(ratio, settings.is_level)
    raw = Ratios(ratio_of_level.exact * mask, ratio_of_level.own * mask, ratio_of_level.log_rows)
    inside = np.ones_like(mask)
    if settings.is_lower is None:
        applied = np.minimum(raw.exact, upper)
    else:
        inside = (raw.own >= settings.is_lower) & (raw.own <= upper)
        applied = np.where(inside, raw.exact, 0.0)
    lower = 1.0 / upper if settings.is_lower is None else settings.is_lower
    if settings.generation.reports == "applied":
        metrics = ratio_summary("rollout_is", applied, raw, mask, Band(lower, upper, 0.0))
    else:
        metrics = ratio_summary("rollout_is", raw.exact, raw, mask, Band(lower, upper, lower))
    if settings.is_lower is not None:
        outside = (raw.own < settings.is_lower) | (raw.own > upper)
        metrics["rollout_is_oob_ratio"] = token_mean(outside, mask)
    if settings.batch_normalize:
        factor = _batch_mean(applied, mask, settings.is_level)
        metrics["rollout_is_batch_norm_factor"] = factor
        applied = applied / factor
    return applied.astype(ratio.own.dtype), metrics


def ratio_summary(prefix: str, values: Reals, raw: Ratios, mask: Booleans, band: Band) -> dict[str, float]:
    """verl's metrics of ratios: `values` are averaged; `raw` is compared with the band in the dtype of the log-probs."""
    rows = row_means(values, mask)
    raw_rows = row_means(raw.own, mask)
    clamped = np.clip(values, band.clamp_low, band.high)
    summary = {
        "mean": token_mean(values, mask),
        **(_token_extremes(values, raw, mask, band) if raw.log_rows is None else _row_extremes(*raw.log_rows, band)),
        "std": token_std(clamped, mask),
        "eff_sample_size": _effective_share(clamped, mask),
        "seq_mean": mean(rows),
        "seq_std": sample_std(rows),
        "seq_max": float(rows.max()),
        "seq_min": float(rows.min()),
        "seq_max_deviation": float(np.abs(rows - 1.0).max()),
        "seq_fraction_high": mean(raw_rows > band.high),
        "seq_fraction_low": mean(raw_rows < band.low),
    }
    return {f"{prefix}_{name}": value for name, value in summary.items()}


def _token_extremes(values: Reals, raw: Ratios, mask: Booleans, band: Band) -> dict[str, float]:
    return {
        "max": float(np.where(mask, values, -np.inf).max()),
        "min": float(np.where(mask, values, np.inf).min()),
        "ratio_fraction_high": token_mean(raw.own > band.high, mask),
        "ratio_fraction_low": token_mean(raw.own < band.low, mask),
    }


def _row_extremes(exact: Reals, own: Reals, band: Band) -> dict[str, float]:
    """Extremes and shares over all rows, empty ones included, before truncation. The minimum is not clamped.

    verl compares log-ratios with the float32 logs of the bounds.
    """
    log_low, log_high = np.log(np.float32(band.low)), np.log(np.float32(band.high))
    return {
        "max": float(np.exp(np.minimum(exact.max(), SAFETY_BOUND))),
        "min": float(np.exp(exact.min())),
        "ratio_fraction_high": mean(own > log_high),
        "ratio_fraction_low": mean(own < log_low),
    }


def _effective_share(weights: Reals, mask: Booleans) -> float:
    """Effective sample size over the number of tokens, in (0, 1]; 0 if every weight is 0, for which verl divides by zero."""
    square = token_mean(np.square(weights / (token_mean(weights, mask) + 1e-8)), mask)
    return 1.0 / square if square else 0.0


def _batch_mean(weights: Reals, mask: Booleans, level: str) -> float:
    """The divisor of the weights: their mean over tokens, or over rows with a token; 1 if the mean is not above 1e-8."""
    if level == "token":
        average = token_mean(weights, mask)
    else:
        average = mean(row_means(weights, mask)[any_in_row(mask)])
    return average if average > 1e-8 else 1.0
