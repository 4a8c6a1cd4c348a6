"""SkyRL's off_policy_correction: masks and a weight from exp(old - rollout), in a fixed order.

The order is outlier mask, token mask, TIS weight, sequence mask. Each stage uses the mask of the stages before it. A sequence
that is already dropped thus has the product exp(0) = 1, and masked tokens are not in the product of their sequence. No
denominator changes.
"""

from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Array

from ..single_precision import single, total
from .settings import Settings
from .tokens import Tokens, masked_mean, row_counts, row_sums, sample_std

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
