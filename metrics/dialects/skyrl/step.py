"""One training step of SkyRL: mini-batches cut into ranks and micro-batches, and the results of each micro-batch."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from ratioscope.arrays import Array, Integers

from ..evaluation import DialectBatch, MicroBatches, not_allowed
from ..micro_batches import row_groups
from ..single_precision import single, total
from .loss import token_loss
from .reduce import loss_divisors, mini_batch_differences, reduced, with_std
from .settings import WITHOUT_CORRECTION, Settings
from .stages import CorrectedBatch, corrected_batch
from .tokens import PRECISIONS, Tokens


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
        None if value is None else single(np.where(arrays.mask | np.isfinite(value), value, 0))
        for value in (arrays.current_logprobs, arrays.old_logprobs, arrays.rollout_logprobs, arrays.advantages)
    )
    current, old, rollout = (None if value is None else rounded(value) for value in (current, old, rollout))
    if settings.skips_policy_forward and rollout is not None:
        old = None
    return Tokens(single(arrays.mask), current, old, rollout, advantages, rounded)


def optimizer_steps(tokens: Tokens, settings: Settings, given: MicroBatches | None) -> list[OptimizerStep]:
    """The results of each mini-batch. A micro-batch of `given` belongs to the mini-batch that has its first row."""
    _check_rows(settings, len(tokens.mask))
    scaled = replace(tokens, advantages=_scaled(tokens, settings))
    return [
        [[_micro_batch(scaled.rows(rows), rows, settings) for rows in rank] for rank in ranks]
        for ranks in _cut(settings, len(tokens.mask), given)
    ]


def logged(steps: list[OptimizerStep]) -> dict[str, float]:
    """The logged metrics, reduced over the micro-batches of a rank, then over ranks, then over optimizer steps."""
    ranks = [[reduced([part.metrics for part in rank], sum_losses=True) for rank in step] for step in steps]
    return with_std(reduced([reduced(step, sum_losses=True) for step in ranks], sum_losses=False))


def _check_rows(settings: Settings, rows: int) -> None:
    """ConfigError for boundaries beyond the batch, because they belong to another batch."""
    for name in ("mini_batch_boundaries", "prompt_boundaries"):
        for pair in getattr(settings, name) or ():
            if not 0 <= pair[0] <= pair[1] <= rows:
                raise not_allowed(name, pair, f"(start, end) rows within the {rows} of this batch")


def _mini_batches(settings: Settings, rows: int) -> tuple[tuple[int, int], ...]:
    return settings.mini_batch_boundaries or ((0, rows),)


def _scaled(tokens: Tokens, settings: Settings) -> Array | None:
    """The losses' advantages, scaled within each mini-batch; 0 for rows outside every mini-batch."""
    if tokens.advantages is None:
        return None
    scaled = np.zeros_like(tokens.advantages)
    for start, end in _mini_batches(settings, len(scaled)):
        step = slice(start, end)
        scaled[step] = tokens.advantages[step] / loss_divisors(tokens.mask[step], settings, start)
    return scaled


def _cut(settings: Settings, count: int, given: MicroBatches | None) -> Iterator[list[list[Integers]]]:
    """For each mini-batch, the row numbers of each rank's micro-batches. A rank has contiguous rows."""
    for start, end in _mini_batches(settings, count):
        if given is not None:
            yield [[rows for rows in row_groups(given, count) if start <= rows[0] < end]]
        else:
            ranks = [rank for rank in np.array_split(np.arange(start, end), settings.dp_size) if len(rank)]
            yield [[rank[rows] for rows in row_groups(settings.micro_batch_size, len(rank))] for rank in ranks]


def _micro_batch(tokens: Tokens, rows: Integers, settings: Settings) -> MicroBatch:
    """The results of a micro-batch; without current log-probs or advantages only those of the correction."""
    correction = _correction(tokens, settings)
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


def _correction(tokens: Tokens, settings: Settings) -> CorrectedBatch:
    if settings.policy_loss_type in WITHOUT_CORRECTION:
        return CorrectedBatch(None, tokens.mask, {})
    return corrected_batch(tokens, settings)
