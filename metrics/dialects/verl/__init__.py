"""verl: the metrics, weights and mask of its rollout correction, from PR 3984 up to version 0.9.1.

The trainer is the numerator of every ratio; expectations are over rollout samples. In decoupled mode verl's driver compares
`old` with `rollout` once per batch. In bypass mode its workers compare `current` with `rollout` in each micro-batch.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from ratioscope.arrays import Integers

from ..evaluation import BatchLike, DialectBatch, Evaluation, MicroBatches, batch_arrays, not_allowed
from ..micro_batches import row_groups
from .config import parse
from .corrected_batch import corrected_batch, some_valid
from .correction import write
from .diagnostics import off_policy_metrics, probability_metrics
from .loss import bypass_loss, decoupled_loss
from .notes import CANONICAL, NOTES
from .presets import GENERATIONS, PRESETS_OF
from .settings import VerlSettings

__all__ = ["CANONICAL", "KINDS", "NOTES", "PRESETS", "PRESETS_OF", "VERSIONS", "evaluate", "parse", "write"]

VERSIONS = tuple(GENERATIONS)
PRESETS = PRESETS_OF["0.9.1"]

Groups = Sequence[Integers] | None


def evaluate(
    batch: BatchLike,
    config: Mapping[str, Any] | None = None,
    *,
    version: str = "0.9.1",
    kind: str = "step",
    micro_batches: MicroBatches | int | None = None,
) -> Evaluation:
    """The metrics and weights of verl for a batch. `config` is a rollout_correction block, or a configuration that has one.

    `kind`: one of KINDS, or "step", the metrics that one training step logs, as far as the batch has the arrays.
    `micro_batches`: the rows of the workers' micro-batches. Workers' metrics are averaged over micro-batches, maxima too, and
    their loss is divided by the tokens before rejection. verl logs workers' metrics as `actor/rollout_corr/...`.
    """
    settings, arrays = parse(config, version), batch_arrays(batch)
    if kind != "step" and kind not in KINDS:
        raise not_allowed("kind", kind, ("step", *KINDS))
    if kind == "bypass_loss" and not settings.generation.bypass_loss:
        raise not_allowed("version", version, [each.version for each in GENERATIONS.values() if each.bypass_loss])
    groups = None if micro_batches is None else row_groups(micro_batches, len(arrays.mask))
    with np.errstate(all="ignore"):  # NaN and infinity are legal values here
        evaluations = [KINDS[each](arrays, settings, groups) for each in _kinds(kind, arrays, settings)]
    return replace(reduce(_joined, evaluations), warnings=settings.warnings)


def _rollout_correction(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    correction = corrected_batch(batch.needed("old_logprobs"), batch.needed("rollout_logprobs"), batch.mask, settings)
    return Evaluation(correction.metrics, correction.weights, correction.mask)


def _current_vs_rollout(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    some_valid(batch.mask)
    current, rollout = batch.needed("current_logprobs"), batch.needed("rollout_logprobs")
    return Evaluation(off_policy_metrics(current, rollout, batch.mask), None, batch.mask)


def _debug_metrics(batch: DialectBatch, settings: VerlSettings, groups: Groups) -> Evaluation:
    old, rollout = batch.needed("old_logprobs"), batch.needed("rollout_logprobs")
    return Evaluation(probability_metrics(old, rollout, batch.mask), None, batch.mask)


KINDS: Mapping[str, Callable[[DialectBatch, VerlSettings, Groups], Evaluation]] = {
    "rollout_correction": _rollout_correction,
    "current_vs_rollout": _current_vs_rollout,
    "debug_metrics": _debug_metrics,
    "bypass_loss": bypass_loss,
    "ppo_clip_loss": decoupled_loss,
}
"""Kind -> evaluation. Each kind reproduces one function of verl: the correction, its metrics with current in place of old, the
probability differences, and the two losses."""


def _kinds(kind: str, batch: DialectBatch, settings: VerlSettings) -> Sequence[str]:
    """The kinds of one training step. Bypass mode has only its loss, which needs `current`."""
    if kind != "step":
        return (kind,)
    if settings.bypass and settings.generation.bypass_loss:
        return ("bypass_loss",)
    has_loss = batch.current_logprobs is not None and batch.advantages is not None
    return ("rollout_correction", "debug_metrics", *(("ppo_clip_loss",) if has_loss else ()))


def _joined(first: Evaluation, second: Evaluation) -> Evaluation:
    """The metrics of both evaluations, with the weights and the mask of the first."""
    return replace(
        first,
        metrics=first.metrics | second.metrics,
        losses={**first.losses, **second.losses},
        arrays={**first.arrays, **second.arrays},
    )
