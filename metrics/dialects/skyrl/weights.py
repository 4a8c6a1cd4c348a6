"""The arrays of one micro-batch in the precision of SkyRL's log-probs, its averages, and off_policy_correction.

off_policy_correction has a fixed order: outlier mask, token mask, TIS weight, sequence mask. Each stage uses the mask of the
stages before it. A sequence that is already dropped thus has the product exp(0) = 1, and masked tokens are not in the product of
their sequence. No denominator changes.

float32 and bfloat16 arithmetic is reproduced element by element, because thresholds decide on rounded numbers (1.01 is
1.0078125 in bfloat16). Sums are float64.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import needed
from ..single_precision import exp, row_totals, single, total
from .settings import Settings

Rounded = Callable[[Any], Array]
"""A number or array in the precision of the log-probs."""

LARGEST_LOG_RATIO = 20.0
"""SkyRL's safe_exp_delta clamps log-ratios to +- this bound."""


def bfloat16(value: Any) -> Array:
    """The value rounded to bfloat16 (nearest, ties to even), held in float32."""
    exact = single(value)
    bits = exact.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isnan(exact), exact, rounded.view(np.float32))


PRECISIONS: dict[str, Rounded] = {"float32": single, "bfloat16": bfloat16}


@dataclass(frozen=True)
class Tokens:
    """The arrays of one micro-batch, (rows, positions); None if the batch lacks them."""

    mask: Array
    """SkyRL's loss_mask as 0.0 and 1.0."""
    current: Array | None
    old: Array | None
    rollout: Array | None
    advantages: Array | None
    rounded: Rounded
    """Rounds to the precision of the log-probs."""

    @property
    def has_loss(self) -> bool:
        """Whether the batch has the arrays that every loss reads."""
        return self.current is not None and self.advantages is not None

    def rows(self, rows: Array) -> "Tokens":
        """The tokens of these rows."""
        current, old, rollout, advantages = (
            None if value is None else value[rows] for value in (self.current, self.old, self.rollout, self.advantages)
        )
        return Tokens(self.mask[rows], current, old, rollout, advantages, self.rounded)

    def needed(self, name: str, reader: str) -> Array:
        """The array of that name. SchemaError if the batch lacks it; the message names `reader`, the setting that reads it."""
        return needed(self, name, reader)

    def log_ratio(self, later: str, earlier: str, reader: str) -> Array:
        """later - earlier, in the precision of the log-probs."""
        return self.rounded(self.needed(later, reader) - self.needed(earlier, reader))

    def ratio(self, later: str, earlier: str, reader: str) -> Array:
        """exp(later - earlier), with the log-ratio clamped to +-20."""
        return self.exp(self.log_ratio(later, earlier, reader))

    def exp(self, log_ratio: Array) -> Array:
        """SkyRL's exponential: clamped in float32, returned in the precision of the log-probs."""
        return self.rounded(exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)))


def masked_mean(values: Array, mask: Array) -> float:
    """Mean over unmasked tokens; 0 if there are none."""
    return total(values * mask) / max(total(mask), 1.0)


def row_sums(values: Array, mask: Array) -> Array:
    """Sum over each row's unmasked tokens, (rows, 1) in float32."""
    return row_totals(values * mask)


def row_counts(mask: Array) -> Array:
    """Unmasked tokens of each row, at least 1, (rows, 1) in float32."""
    return np.maximum(row_totals(mask), np.float32(1))


def sample_std(values: Array) -> float:
    """Standard deviation with n - 1 in the denominator; nan for fewer than two values."""
    return float(np.std(values, ddof=1, dtype=np.float64)) if values.size > 1 else float("nan")


READER = "off_policy_correction"


@dataclass(frozen=True)
class CorrectedBatch:
    """The correction of one micro-batch."""

    weights: Array | None
    """The TIS weight, (rows, positions) or (rows, 1); None without TIS."""
    mask: Array
    """1.0 for tokens that stay, else 0.0."""
    metrics: dict[str, float]


def corrected_batch(tokens: Tokens, settings: Settings) -> CorrectedBatch:
    """The correction of one micro-batch. Without rollout log-probs SkyRL silently corrects nothing."""
    if not settings.corrects or tokens.rollout is None:
        return CorrectedBatch(None, tokens.mask, {})
    metrics = _ratio_metrics(tokens)
    if settings.masks_outliers:
        tokens = _stage(tokens, _outlier_mask(tokens, settings), metrics)
    if settings.masks_tokens:
        tokens = _stage(tokens, _token_mask(tokens, settings), metrics)
    weights = None
    if settings.tis_ratio_type is not None:
        weights, shares = WEIGHTS[settings.tis_ratio_type](tokens, settings)
        metrics |= shares
    if settings.sequence_mask_metric is not None:
        tokens = _stage(tokens, _sequence_mask(tokens, settings), metrics)
    return CorrectedBatch(weights, tokens.mask, metrics)


def _stage(tokens: Tokens, outcome: tuple[Array, dict[str, float]], metrics: dict[str, float]) -> Tokens:
    """The tokens with a stage's mask applied. The metrics of the stage are added to `metrics`."""
    keep, shares = outcome
    metrics |= shares
    return replace(tokens, mask=tokens.mask * keep)


def _ratio_metrics(tokens: Tokens) -> dict[str, float]:
    """Metrics of the weights before any mask. All but the mean include padding and masked positions as 0."""
    ratio = tokens.ratio("old", "rollout", READER)
    padded = ratio * tokens.mask
    return {
        "is_ratio_mean": masked_mean(ratio, tokens.mask),
        "is_ratio_std": sample_std(padded),
        "is_ratio_max": float(padded.max()),
        "is_ratio_min": float(padded.min()),
    }


def _outlier_mask(tokens: Tokens, settings: Settings) -> tuple[Array, dict[str, float]]:
    """The mask of rows without a token beyond either bound, (rows, 1), and its metrics."""
    low, high = settings.outlier_token_is_threshold_low, settings.outlier_token_is_threshold_high
    ratio, valid = tokens.ratio("old", "rollout", READER), tokens.mask > 0
    over = valid & (high is not None) & (ratio > tokens.rounded(high))
    under = valid & (low is not None) & (ratio < tokens.rounded(low))
    return _kept(np.any(over, axis=-1)[:, None], np.any(under, axis=-1)[:, None], "outlier_seq")


def _token_mask(tokens: Tokens, settings: Settings) -> tuple[Array, dict[str, float]]:
    ratio, valid = tokens.ratio("old", "rollout", READER), tokens.mask > 0
    low, high = (
        tokens.rounded(settings.token_mask_is_threshold_low),
        tokens.rounded(settings.token_mask_is_threshold_high),
    )
    inside = (ratio >= low) & (ratio <= high)
    removed = total(~inside & valid) / max(total(valid), 1.0)
    return single(inside | ~valid), {"token_mask_ratio": removed}


def _token_weights(tokens: Tokens, settings: Settings) -> tuple[Array, dict[str, float]]:
    ratio, valid = tokens.ratio("old", "rollout", READER), tokens.mask > 0
    cap = tokens.rounded(settings.token_tis_ratio_clip_high)
    clipped = total((ratio > cap) & valid) / max(total(valid), 1.0)
    return np.minimum(ratio, cap), {"tis_token_clip_high_ratio": clipped}


def _sequence_weights(tokens: Tokens, settings: Settings) -> tuple[Array, dict[str, float]]:
    ratio, cap = _product(tokens), tokens.rounded(settings.sequence_tis_ratio_clip_high)
    return np.minimum(ratio, cap), {"tis_seq_clip_high_ratio": float((ratio > cap).mean())}


def _sequence_mask(tokens: Tokens, settings: Settings) -> tuple[Array, dict[str, float]]:
    """The mask of rows whose product or geometric mean of weights is inside the bounds, (rows, 1), and its metrics."""
    if settings.sequence_mask_metric == "geometric":
        ratio, low, high, name = _geometric_mean(tokens), settings.geo_mask_low, settings.geo_mask_high, "geo"
    else:
        ratio, low, high, name = _product(tokens), settings.product_mask_low, settings.product_mask_high, "product"
    return _kept(ratio > tokens.rounded(high), ratio < tokens.rounded(low), f"{name}_sequence_mask")


def _product(tokens: Tokens) -> Array:
    return tokens.exp(row_sums(tokens.log_ratio("old", "rollout", READER), tokens.mask))


def _geometric_mean(tokens: Tokens) -> Array:
    sums = row_sums(tokens.log_ratio("old", "rollout", READER), tokens.mask)
    return tokens.exp(sums / row_counts(tokens.mask))


def _kept(over: Array, under: Array, name: str) -> tuple[Array, dict[str, float]]:
    """(1.0 for rows neither over nor under, else 0.0; the share of rows dropped for each reason)."""
    dropped = over | under
    shares = {"masked": dropped, "over_high": over, "under_low": under}
    return single(~dropped), {f"{name}_{why}_ratio": float(rows.mean()) for why, rows in shares.items()}


WEIGHTS = {"token": _token_weights, "sequence": _sequence_weights}
