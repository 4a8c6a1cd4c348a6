"""SkyRL's scale of advantages before a loss, and its averages of metrics after it: micro-batch, rank, mini-batch.

Every stage takes an unweighted mean over the stage before, so a metric is a mean of means.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from ratioscope.arrays import Array
from ratioscope.errors import ConfigError

from ..evaluation import not_allowed
from ..single_precision import single
from .settings import REDUCTIONS, Boundaries, Settings
from .tokens import Tokens, masked_mean, sample_std

MINI_BATCH = "minibatch_rollout_logprobs_abs_diff"
TRAINING_BATCH = "rollout_train_logprobs_abs_diff"


def reduced(stages: Sequence[Mapping[str, float]], *, sum_losses: bool) -> dict[str, float]:
    """One number per name: the maximum for `_max`, the minimum for `_min`, the sum of losses if `sum_losses`, else the mean."""
    names = {name: None for stage in stages for name in stage}
    return {name: _reduced(name, [stage[name] for stage in stages if name in stage], sum_losses) for name in names}


def _reduced(name: str, values: list[float], sum_losses: bool) -> float:
    if name.endswith("_max"):
        return max(values)
    if name.endswith("_min"):
        return min(values)
    if sum_losses and (name == "loss" or name.endswith("_loss")):
        return sum(values)
    return sum(values) / len(values)


def mini_batch_differences(tokens: Tokens) -> dict[str, float]:
    """|current - rollout| in one micro-batch: its mean, second moment, and extremes over the padded array."""
    if tokens.rollout is None:
        return {}
    gap = np.abs(tokens.log_ratio("current", "rollout", MINI_BATCH))
    padded = gap * tokens.mask
    return {
        f"{MINI_BATCH}_mean": masked_mean(gap, tokens.mask),
        f"{MINI_BATCH}_sq_mean": masked_mean(tokens.rounded(gap * gap), tokens.mask),
        f"{MINI_BATCH}_max": float(padded.max()),
        f"{MINI_BATCH}_min": float(padded.min()),
    }


def with_std(metrics: Mapping[str, float]) -> dict[str, float]:
    """The metrics with the standard deviation in place of the second moment."""
    kept = {name: value for name, value in metrics.items() if name != f"{MINI_BATCH}_sq_mean"}
    if f"{MINI_BATCH}_sq_mean" in metrics:
        variance = metrics[f"{MINI_BATCH}_sq_mean"] - metrics[f"{MINI_BATCH}_mean"] ** 2
        kept[f"{MINI_BATCH}_std"] = float(np.sqrt(max(0.0, variance)))
    return kept


def training_batch_differences(tokens: Tokens) -> dict[str, float]:
    """|rollout - old| over all unmasked tokens; empty without such tokens, or if either side is absent."""
    if tokens.rollout is None or tokens.old is None:
        return {}
    gap = np.abs(tokens.log_ratio("rollout", "old", TRAINING_BATCH))[tokens.mask > 0]
    if not gap.size:
        return {}
    statistics = {"max": gap.max(), "min": gap.min(), "mean": gap.mean(dtype=np.float64), "std": sample_std(gap)}
    return {f"{TRAINING_BATCH}_{name}": float(tokens.rounded(value)) for name, value in statistics.items()}


def loss_divisors(mask: Array, settings: Settings, first_row: int) -> Array:
    """The divisors of a mini-batch's advantages, (rows, 1) in float32: a sum of losses then is the mean of `loss_reduction`.

    They count tokens before the correction masks any. `first_row`: the mini-batch's first row in the batch, because
    `prompt_boundaries` count from the batch's first row.
    """
    rows = len(mask)
    match settings.loss_reduction:
        case "token_mean":
            divisors = np.full((rows, 1), max(mask.sum(), 1))
        case "token_mean_legacy":
            divisors = _micro_batch_tokens(mask, settings.micro_batch_size or rows)
        case "sequence_mean":
            divisors = rows * np.maximum(mask.sum(axis=1, keepdims=True), 1)
        case "seq_mean_token_sum_norm":
            divisors = np.full((rows, 1), rows * (settings.max_seq_len or 1))
        case "prompt_mean":
            divisors = _prompt_tokens(mask, settings.prompt_boundaries, first_row)
        case other:
            raise not_allowed("loss_reduction", other, REDUCTIONS)
    return single(divisors)


def _micro_batch_tokens(mask: Array, size: int) -> Array:
    """The tokens of a row's micro-batch times the number of whole micro-batches; inf for rows beyond the last whole one."""
    whole, divisors = len(mask) // size, np.full((len(mask), 1), np.inf)
    for rows in (slice(i * size, (i + 1) * size) for i in range(whole)):
        divisors[rows] = whole * max(mask[rows].sum(), 1)
    return divisors


def _prompt_tokens(mask: Array, prompts: Boundaries | None, first_row: int) -> Array:
    """The tokens of a row's prompt times the number of prompts that start in the mini-batch; inf for rows without a prompt."""
    if prompts is None:
        raise ConfigError(
            "loss_reduction is 'prompt_mean', which needs prompt_boundaries: (start, end) rows per prompt"
        )
    inside = [(start - first_row, end - first_row) for start, end in prompts if 0 <= start - first_row < len(mask)]
    divisors = np.full((len(mask), 1), np.inf)
    for start, end in inside:
        divisors[start:end] = len(inside) * max(mask[start:end].sum(), 1)
    return divisors
