"""TRL's importance-sampling ratio between old and rollout, its metrics, and the off-policy sequence mask."""

from collections.abc import Sequence

import numpy as np

from ratioscope.arrays import Booleans, Integers, Singles

from ..single_precision import exp, mean, row_totals, single
from .settings import Settings


def importance_ratio(old: Singles, rollout: Singles, mask: Booleans, s: Settings) -> Singles:
    """The ratio after clamping or masking: (rows, positions), or (rows, 1) per sequence.

    A masked token has ratio 1 before clamping or masking, and so has a token without a rollout log-prob (NaN). Infinite
    differences become the largest float32.
    """
    difference = np.nan_to_num((old - rollout) * single(mask), nan=0.0)
    ratio = exp(row_totals(difference) if s.per_sequence else difference)
    low, high = s.bounds
    if s.vllm_importance_sampling_mode.endswith("truncate"):
        return np.clip(ratio, low, high)
    return single(np.where((ratio < low) | (ratio > high), 0.0, ratio))


def kept_sequences(
    advantages: Singles, earlier: Singles, current: Singles, mask: Booleans, threshold: float
) -> Booleans:
    """The off-policy mask, (rows, 1) or the shape of the advantages.

    A sequence stays if its advantage is not negative, or if its mean of earlier - current is at most the threshold. A token
    without an earlier log-prob has difference 0.
    """
    difference = np.nan_to_num(earlier - current, nan=0.0) * single(mask)
    average = row_totals(difference) / np.maximum(mask.sum(axis=1, keepdims=True), 1)
    return (advantages >= 0) | (single(average) <= threshold)


def sampling_metrics(
    difference: Singles, ratio: Singles, mask: Booleans, processes: Sequence[Integers], s: Settings
) -> dict[str, float]:
    """`sampling/*` of one generation batch, from old - rollout and the ratio.

    A mean is a plain mean over processes of the mean over each process's tokens. A process without tokens has 0.
    """
    masks = [mask[rows] for rows in processes]
    gaps = [np.abs(difference[rows])[inside] for rows, inside in zip(processes, masks, strict=True)]
    gaps = [gap[~np.isnan(gap)] for gap in gaps]
    pairs = zip(processes, masks, strict=True)
    weights = [ratio[rows].ravel() if s.per_sequence else ratio[rows][inside] for rows, inside in pairs]
    name = "sampling/importance_sampling_ratio"
    return {
        "sampling/sampling_logp_difference/mean": _average([mean(gap) if gap.size else 0.0 for gap in gaps]),
        "sampling/sampling_logp_difference/max": max(float(gap.max(initial=0.0)) for gap in gaps),
        f"{name}/min": min(float(weight.min()) if weight.size else 0.0 for weight in weights),
        f"{name}/mean": _average([mean(weight) if weight.size else 0.0 for weight in weights]),
        f"{name}/max": max(float(weight.max()) if weight.size else 0.0 for weight in weights),
    }


def _average(values: Sequence[float]) -> float:
    return sum(values) / len(values)
