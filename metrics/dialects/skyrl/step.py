"""One training step of SkyRL: mini-batches cut into ranks and micro-batches, and the results of each micro-batch.

Averages run over micro-batch, rank, then mini-batch. Every stage takes an unweighted mean over the stage before, so a metric is a
mean of means.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Array, Integers
from ratioscope.errors import ConfigError

from ..batch import DialectBatch, MicroBatches, row_groups, rows_of
from ..settings import not_allowed
from ..single_precision import recorded, single, total
from .loss import token_loss
from .settings import REDUCTIONS, WITHOUT_CORRECTION, Boundaries, Settings
from .weights import PRECISIONS, CorrectedBatch, Tokens, corrected_batch, masked_mean, sample_std

MINI_BATCH = "minibatch_rollout_logprobs_abs_diff"
TRAINING_BATCH = "rollout_train_logprobs_abs_diff"


def reduced(stages: Sequence[Mapping[str, float]], *, sum_losses: bool) -> dict[str, float]:
    """One number per name: the maximum for `_max`, the minimum for `_min`, the sum of losses if `sum_losses`, else the mean."""
    together: dict[str, float] = {}
    for name in {name: None for stage in stages for name in stage}:
        values = [stage[name] for stage in stages if name in stage]
        if name.endswith(("_max", "_min")):
            together[name] = max(values) if name.endswith("_max") else min(values)
        else:
            added = sum_losses and (name == "loss" or name.endswith("_loss"))
            together[name] = sum(values) if added else sum(values) / len(values)
    return together


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


@dataclass(frozen=True)
class MicroBatch:
    """The results of one micro-batch; arrays have shape (rows, positions)."""

    rows: Integers
    """Its row numbers in the batch."""
    metrics: dict[str, float]
    mask: Array
    """The tokens that the correction leaves."""
    weights: Array | None = None
    """Also (rows, 1). None if the correction forms no weight."""
    loss_before: Array | None = None
    """Loss per token before the correction; None if the batch lacks current log-probs or advantages."""
    loss_after: Array | None = None
    """Loss per token after the weights, before the mask."""


OptimizerStep = list[list[MicroBatch]]
"""The micro-batches of each rank."""


def batch_tokens(arrays: DialectBatch, settings: Settings) -> Tokens:
    """The whole batch in the precision of its log-probs; old is None if SkyRL skips the policy forward.

    SkyRL has a finite number at every masked position. A masked value that is not on record is 0 here.
    """
    rounded = PRECISIONS[settings.dtype]
    current, old, rollout, advantages = (
        None if value is None else recorded(value, arrays.mask)
        for value in (arrays.current_logprobs, arrays.old_logprobs, arrays.rollout_logprobs, arrays.advantages)
    )
    current, old, rollout = (None if value is None else rounded(value) for value in (current, old, rollout))
    if settings.skips_policy_forward and rollout is not None:
        old = None
    return Tokens(single(arrays.mask), current, old, rollout, advantages, rounded)


def optimizer_steps(tokens: Tokens, settings: Settings, given: MicroBatches | int | None) -> list[OptimizerStep]:
    """The results of each mini-batch. A micro-batch of `given` belongs to the mini-batch that has its first row."""
    count = len(tokens.mask)
    for name in ("mini_batch_boundaries", "prompt_boundaries"):
        for pair in getattr(settings, name) or ():
            if not 0 <= pair[0] <= pair[1] <= count:  # boundaries beyond the batch belong to another batch
                raise not_allowed(name, pair, f"(start, end) rows within the {count} of this batch")
    scaled = replace(tokens, advantages=_scaled(tokens, settings))
    return [
        [[_micro_batch(rows_of(scaled, rows), rows, settings) for rows in rank] for rank in ranks]
        for ranks in _cut(settings, count, given)
    ]


def logged(steps: list[OptimizerStep]) -> dict[str, float]:
    """The logged metrics, reduced over the micro-batches of a rank, then over ranks, then over optimizer steps."""
    ranks = [[reduced([part.metrics for part in rank], sum_losses=True) for rank in step] for step in steps]
    metrics = reduced([reduced(step, sum_losses=True) for step in ranks], sum_losses=False)
    square = metrics.pop(f"{MINI_BATCH}_sq_mean", None)
    if square is not None:
        variance = square - metrics[f"{MINI_BATCH}_mean"] ** 2
        metrics[f"{MINI_BATCH}_std"] = float(np.sqrt(max(0.0, variance)))
    return metrics


def _scaled(tokens: Tokens, settings: Settings) -> Array | None:
    """The losses' advantages, scaled within each mini-batch; 0 for rows outside every mini-batch."""
    if tokens.advantages is None:
        return None
    scaled = np.zeros_like(tokens.advantages)
    for start, end in settings.mini_batch_boundaries or ((0, len(scaled)),):
        step = slice(start, end)
        scaled[step] = tokens.advantages[step] / loss_divisors(tokens.mask[step], settings, start)
    return scaled


def _cut(settings: Settings, count: int, given: MicroBatches | int | None) -> Iterator[list[list[Integers]]]:
    """For each mini-batch, the row numbers of each rank's micro-batches. A rank has contiguous rows."""
    for start, end in settings.mini_batch_boundaries or ((0, count),):
        if given is not None:
            yield [[rows for rows in row_groups(given, count) if start <= rows[0] < end]]
        else:
            ranks = [rank for rank in np.array_split(np.arange(start, end), settings.dp_size) if len(rank)]
            yield [[rank[rows] for rows in row_groups(settings.micro_batch_size, len(rank))] for rank in ranks]


def _micro_batch(tokens: Tokens, rows: Integers, settings: Settings) -> MicroBatch:
    """The results of a micro-batch; without current log-probs or advantages only those of the correction."""
    correction = CorrectedBatch(None, tokens.mask, {})
    if settings.policy_loss_type not in WITHOUT_CORRECTION:
        correction = corrected_batch(tokens, settings)
    metrics = {f"loss_metrics/{name}": value for name, value in correction.metrics.items()}
    metrics |= {} if tokens.current is None else mini_batch_differences(tokens)
    if not tokens.has_loss:
        return MicroBatch(rows, metrics, correction.mask, correction.weights)
    loss = token_loss(tokens, settings)
    metrics |= {f"loss_metrics/{name}": value for name, value in loss.metrics.items()}
    after = loss.loss if correction.weights is None else loss.loss * correction.weights
    metrics["policy_loss"] = total(after * correction.mask)
    weights = loss.rollout_weights if correction.weights is None else correction.weights
    return MicroBatch(rows, metrics, correction.mask, weights, loss.loss, after)
