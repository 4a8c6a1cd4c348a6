"""SkyRL (NovaSky-AI/SkyRL): its off-policy correction, rollout-anchored losses, and the metrics that it logs.

The correction and loss files of 0.4.0 and of the main branch of August 2026 are byte-identical. Version 0.3.0 computes the
same except for CISPO, which it always anchors on old log-probs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..evaluation import BatchLike, DialectBatch, Evaluation, MicroBatches, batch_arrays
from .config import parse
from .correction import write
from .names import CANONICAL, NOTES, PRESETS
from .reduce import training_batch_differences
from .settings import VERSIONS, Settings
from .step import MicroBatch, batch_tokens, logged, optimizer_steps
from .tokens import Tokens

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]


def evaluate(
    batch: BatchLike,
    config: Mapping[str, Any],
    *,
    version: str | None = None,
    kind: str | None = None,
    micro_batches: MicroBatches | None = None,
) -> Evaluation:
    """The metrics `policy/...` of SkyRL for one training batch, and the weights and mask of its correction.

    `weights`: the TIS weight; without TIS, the factor exp(current - rollout) of a loss anchored on the rollout policy, or None.
    `losses`: the sum over micro-batches. `arrays`: the loss per token before and after the correction. All versions compute
    the same. `micro_batches` replaces the configured micro-batches. `kind` has no effect.
    """
    arrays = batch_arrays(batch)
    settings = _with_prompts(parse(config, version), arrays)
    with np.errstate(all="ignore"):
        tokens = batch_tokens(arrays, settings)
        steps = optimizer_steps(tokens, settings, micro_batches) if tokens.mask.size else []
        numbers = training_batch_differences(tokens) | logged(steps)
    parts = [part for step in steps for rank in step for part in rank]
    rows = len(tokens.mask)
    weights = _joined(parts, "weights", rows)
    mask = _joined(parts, "mask", rows, tokens.mask)
    losses = [part.metrics["policy_loss"] for part in parts if "policy_loss" in part.metrics]
    per_token = {f"loss_token_{when}": _joined(parts, f"loss_{when}", rows) for when in ("before", "after")}
    return Evaluation(
        metrics={f"policy/{name}": value for name, value in numbers.items()},
        weights=weights,
        mask=arrays.mask if mask is None else mask > 0,
        warnings=(*settings.warnings, *_warnings(tokens, settings)),
        losses={"policy_loss": sum(losses)} if losses else {},
        arrays={name: array for name, array in per_token.items() if array is not None},
        lacks=tuple(_absent(tokens)) if settings.anchors_on_rollout and weights is None else (),
    )


def _absent(tokens: Tokens) -> Iterator[str]:
    """Arrays that every loss reads and the batch lacks."""
    if tokens.current is None:
        yield "current_logprobs"
    if tokens.advantages is None:
        yield "advantages"


def _with_prompts(settings: Settings, arrays: DialectBatch) -> Settings:
    """The settings with the rows of each prompt. If they have none, consecutive rows with one `group_ids` are one prompt."""
    groups = arrays.extra.get("group_ids")
    if settings.prompt_boundaries is not None or groups is None or not len(groups):
        return settings
    starts = [0, *(np.flatnonzero(groups[1:] != groups[:-1]) + 1).tolist(), len(groups)]
    return replace(settings, prompt_boundaries=tuple(pairwise(starts)))


def _joined(parts: Sequence[MicroBatch], name: str, rows: int, untouched: float | Array = 1.0) -> Array | None:
    """The parts' arrays of that name in the order of the batch; None if a part lacks it.

    Rows that belong to no part get `untouched`.
    """
    values = [getattr(part, name) for part in parts]
    if not values or any(value is None for value in values):
        return None
    whole = np.empty((rows, values[0].shape[1]), np.float32)
    whole[:] = untouched
    for part, value in zip(parts, values, strict=True):
        whole[part.rows] = value
    return whole


def _warnings(tokens: Tokens, settings: Settings) -> Iterator[str]:
    if settings.corrects and tokens.rollout is None:
        yield "the batch has no rollout_logprobs: SkyRL silently skips its correction"
    if not tokens.has_loss:
        yield "the batch lacks current_logprobs or advantages: the metrics of SkyRL's loss are left out"
