"""verl's log-ratio at two precisions, its averages, and its importance weights with their metrics.

Values (means, weights) are computed in float64. Comparisons with a bound use the dtype of the log-probs, as in verl. For a token
exactly at a bound the two precisions differ, and the mask must be verl's.
"""

from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array, Booleans, Floats, Reals

from .settings import VerlSettings

SAFETY_BOUND = 20.0
"""Weights, chi-squared and divergences clamp log-ratios to +- this bound before exp; kl and k3_kl do not."""


@dataclass(frozen=True)
class LogRatio:
    """Trainer minus rollout log-prob, (rows, positions)."""

    exact: Floats
    """In float64."""
    own: Reals
    """In the dtype of the log-probs."""
    mask: Booleans
    """Valid tokens."""

    @property
    def tokens(self) -> int:
        """Valid tokens of the batch."""
        return int(self.mask.sum())


def log_ratio(train: Reals, rollout: Reals, mask: Booleans) -> LogRatio:
    """The log-ratio of two log-prob arrays of shape (rows, positions)."""
    return LogRatio(train.astype(np.float64) - rollout.astype(np.float64), train - rollout, mask)


def bounded(log_ratios: Reals) -> Reals:
    """The log-ratios clamped to +-SAFETY_BOUND; NaN stays NaN."""
    return np.asarray(np.clip(log_ratios, -SAFETY_BOUND, SAFETY_BOUND))


def exp(values: Reals) -> Reals:
    """exp in the dtype of the values, rounded once from float64.

    It equals torch's float32 exp for 99% of values; numpy's float32 exp does for 60%.
    """
    return np.asarray(np.exp(values.astype(np.float64)), values.dtype)


def any_in_row(flags: Booleans) -> Booleans:
    """Whether each row has a true position, (rows,)."""
    return np.asarray(flags.any(axis=1), np.bool_)


def row_sums(values: Reals, mask: Booleans) -> Reals:
    """Sum over each row's valid tokens, (rows,), rounded once to the dtype of the values; 0 for an empty row."""
    return np.asarray(np.where(mask, values, 0).sum(axis=1, dtype=np.float64), values.dtype)


def row_means(values: Reals, mask: Booleans) -> Reals:
    """Mean over each row's valid tokens, (rows,); 0 for an empty row. verl averages empty rows like any other."""
    return np.asarray(row_sums(values, mask) / np.maximum(mask.sum(axis=1), 1).astype(values.dtype))


def token_mean(values: Array, mask: Booleans) -> float:
    """Mean over all valid tokens of the batch; 0 without any."""
    return float(np.where(mask, values, 0).sum(dtype=np.float64) / max(int(mask.sum()), 1))


def mean(values: Array) -> float:
    """Plain mean, in float64."""
    return float(values.mean(dtype=np.float64))


def sample_std(values: Reals) -> float:
    """Standard deviation with n - 1; 0.0 for one value. The first value is subtracted, so equal values give exactly 0."""
    if values.size < 2:
        return 0.0
    shifted = values - values[0]
    return float(np.sqrt(np.square(shifted - mean(shifted)).sum(dtype=np.float64) / (values.size - 1)))


def token_std(values: Reals, mask: Booleans) -> float:
    """sqrt(max(0, E[v^2] - E[v]^2)) over valid tokens, n in the denominator; 0.0 for one token.

    In float32 this difference of squares loses every digit if the spread is small against the mean.
    """
    if mask.sum() < 2:
        return 0.0
    return float(np.sqrt(np.maximum(0.0, token_mean(np.square(values), mask) - token_mean(values, mask) ** 2)))


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
    if settings.reports_applied:
        metrics = ratio_summary("rollout_is", applied, raw, mask, Band(lower, upper, 0.0))
    else:
        metrics = ratio_summary("rollout_is", raw.exact, raw, mask, Band(lower, upper, lower))
    if settings.is_lower is not None:
        outside = (raw.own < settings.is_lower) | (raw.own > upper)
        metrics["rollout_is_oob_ratio"] = token_mean(outside, mask)
    if settings.batch_normalize:
        # The divisor of the weights: their mean over tokens, or over rows with a token; 1 if the mean is not above 1e-8.
        if settings.is_level == "token":
            average = token_mean(applied, mask)
        else:
            average = mean(row_means(applied, mask)[any_in_row(mask)])
        factor = average if average > 1e-8 else 1.0
        metrics["rollout_is_batch_norm_factor"] = factor
        applied = applied / factor
    return applied.astype(ratio.own.dtype), metrics


def ratio_summary(prefix: str, values: Reals, raw: Ratios, mask: Booleans, band: Band) -> dict[str, float]:
    """verl's metrics of ratios: `values` are averaged; `raw` is compared with the band in the dtype of the log-probs."""
    rows = row_means(values, mask)
    raw_rows = row_means(raw.own, mask)
    clamped = np.clip(values, band.clamp_low, band.high)
    # Effective sample size over the number of tokens, in (0, 1]; 0 if every weight is 0, for which verl divides
    # by zero.
    square = token_mean(np.square(clamped / (token_mean(clamped, mask) + 1e-8)), mask)
    summary = {
        "mean": token_mean(values, mask),
        **(_token_extremes(values, raw, mask, band) if raw.log_rows is None else _row_extremes(*raw.log_rows, band)),
        "std": token_std(clamped, mask),
        "eff_sample_size": 1.0 / square if square else 0.0,
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
