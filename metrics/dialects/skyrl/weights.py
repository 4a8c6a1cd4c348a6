"""The arrays of one micro-batch in the precision of SkyRL's log-probs, its averages, and off_policy_correction.

off_policy_correction has a fixed order: outlier mask, token mask, TIS weight, sequence mask. Each stage uses the mask of the
stages before it. A sequence that is already dropped thus has the product exp(0) = 1, and masked tokens are not in the product of
their sequence. No denominator changes.

float32 and bfloat16 arithmetic is reproduced element by element, because thresholds decide on rounded numbers (1.01 is
1.0078125 in bfloat16). Sums are float64.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import needed
from ..single_precision import exp, row_means, row_totals, single, total
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

    def log_ratio(self, later: str, earlier: str, reader: str) -> Array:
        """later - earlier, in the precision of the log-probs."""
        return self.rounded(needed(self, later, reader) - needed(self, earlier, reader))

    def ratio(self, later: str, earlier: str, reader: str) -> Array:
        """exp(later - earlier), with the log-ratio clamped to +-20."""
        return self.exp(self.log_ratio(later, earlier, reader))

    def exp(self, log_ratio: Array) -> Array:
        """SkyRL's exponential: clamped in float32, returned in the precision of the log-probs."""
        return self.rounded(exp(np.clip(log_ratio, -LARGEST_LOG_RATIO, LARGEST_LOG_RATIO)))


def masked_mean(values: Array, mask: Array) -> float:
    """Mean over unmasked tokens; 0 if there are none."""
    return total(values * mask) / max(total(mask), 1.0)


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
    log_ratio = tokens.log_ratio("old", "rollout", READER)
    ratio, weights = tokens.exp(log_ratio), None
    padded = ratio * tokens.mask
    # Metrics of the weights before any mask. All but the mean include padding and masked positions as 0.
    metrics = {
        "is_ratio_mean": masked_mean(ratio, tokens.mask),
        "is_ratio_std": sample_std(padded),
        "is_ratio_max": float(padded.max()),
        "is_ratio_min": float(padded.min()),
    }
    mask = _masked(tokens, ratio, settings, metrics)
    if settings.tis_ratio_type == "token":
        cap, valid = tokens.rounded(settings.token_tis_ratio_clip_high), mask > 0
        metrics["tis_token_clip_high_ratio"] = total((ratio > cap) & valid) / max(total(valid), 1.0)
        weights = np.minimum(ratio, cap)
    elif settings.tis_ratio_type == "sequence":
        cap, product = tokens.rounded(settings.sequence_tis_ratio_clip_high), tokens.exp(row_totals(log_ratio * mask))
        metrics["tis_seq_clip_high_ratio"] = float((product > cap).mean())
        weights = np.minimum(product, cap)
    if settings.sequence_mask_metric is not None:
        if settings.sequence_mask_metric == "geometric":
            sums, low, high, name = row_means(log_ratio, mask), settings.geo_mask_low, settings.geo_mask_high, "geo"
        else:
            sums, name = row_totals(log_ratio * mask), "product"
            low, high = settings.product_mask_low, settings.product_mask_high
        over, under = tokens.exp(sums) > tokens.rounded(high), tokens.exp(sums) < tokens.rounded(low)
        mask = mask * _kept(over, under, f"{name}_sequence_mask", metrics)
    return CorrectedBatch(weights, mask, metrics)


def _masked(tokens: Tokens, ratio: Array, settings: Settings, metrics: dict[str, float]) -> Array:
    """The mask without rows that have a token beyond either bound, then without tokens outside a band; adds their metrics."""
    mask, rounded = tokens.mask, tokens.rounded
    if settings.masks_outliers:
        low, high = settings.outlier_token_is_threshold_low, settings.outlier_token_is_threshold_high
        over = (mask > 0) & (high is not None) & (ratio > rounded(high))
        under = (mask > 0) & (low is not None) & (ratio < rounded(low))
        mask = mask * _kept(np.any(over, axis=-1)[:, None], np.any(under, axis=-1)[:, None], "outlier_seq", metrics)
    if settings.masks_tokens:
        low, high = settings.token_mask_is_threshold_low, settings.token_mask_is_threshold_high
        inside, valid = (ratio >= rounded(low)) & (ratio <= rounded(high)), mask > 0
        metrics["token_mask_ratio"] = total(~inside & valid) / max(total(valid), 1.0)
        mask = mask * single(inside | ~valid)
    return mask


def _kept(over: Array, under: Array, name: str, metrics: dict[str, float]) -> Array:
    """1.0 for rows neither over nor under, else 0.0; adds the share of rows dropped for each reason to the metrics."""
    dropped = over | under
    shares = {"masked": dropped, "over_high": over, "under_low": under}
    metrics |= {f"{name}_{why}_ratio": float(rows.mean()) for why, rows in shares.items()}
    return single(~dropped)
