"""Hugging Face TRL's GRPOTrainer: `sampling/*`, clip shares and entropy, and the vLLM importance-sampling correction.

TRL's names: sampling_per_token_logps = rollout, old_per_token_logps = old, per_token_logps = current. `sampling/*` are computed
once, over the whole generation batch. The others are averages over the micro-batches since the last log line.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ratioscope.arrays import Array, Integers, Singles

from ..batch import DialectBatch, rows_of
from ..evaluation import Call, Evaluation, evaluator
from ..single_precision import single
from .correction import write
from .loss import Accumulation, Inputs, Step, importance_ratio, kept_sequences, micro_step, sampling_metrics
from .settings import MODES, VERSIONS, Settings, parse

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write", "Array", "Integers"]

PRESETS: dict[str, dict[str, Any]] = {mode: {"vllm_importance_sampling_mode": mode} for mode in MODES} | {
    "off": {"vllm_importance_sampling_correction": False},
    "gspo": {"importance_sampling_level": "sequence", "loss_type": "grpo"},
    "off-policy-mask": {"off_policy_mask_threshold": 0.5},
}
"""The four modes have TRL's own bounds (C_max 3). `off-policy-mask` has the threshold of an example in its documentation."""

CANONICAL: dict[str, str | None] = {
    "sampling/sampling_logp_difference/mean": "mismatch/abs_log_ratio",
    "sampling/sampling_logp_difference/max": "mismatch/max_abs_log_ratio",
    "sampling/importance_sampling_ratio/mean": "mismatch/mean_weight_token",
    **{f"sampling/importance_sampling_ratio/{extreme}": None for extreme in ("min", "max")},
    **{f"clip_ratio/{name}": None for name in ("low_mean", "high_mean")},
    "clip_ratio/region_mean": "drift/share_outside_0.8_1.2",
    **{f"clip_ratio/{name}": None for name in ("low_min", "high_max")},
}

NOTES: dict[str, str] = {
    "sampling/sampling_logp_difference/mean": "a plain mean over processes of the mean over each process's tokens with a "
    "rollout log-prob, 0 without any, and over the generation batches since the last log",
    "sampling/importance_sampling_ratio/mean": "after clamping or masking; in sequence modes (sequence_mask unless set) a mean "
    "of products over sequences, and a row without tokens counts as 1; a plain mean over processes, and over the generation "
    "batches since the last log",
    "sampling/importance_sampling_ratio/min": "in the mask modes 0 as soon as one value is masked out",
    "sampling/importance_sampling_ratio/max": "after the clamp: never above C_max, so it hides the true maximum",
    "clip_ratio/region_mean": "counts a token outside the clip range only if its advantage has the sign that clips; with "
    "importance_sampling_level 'sequence', and in RLOOTrainer, a mean over sequences, empty ones included; a mean over the "
    "micro-batches since the last log; AsyncGRPOTrainer takes current over rollout",
    "clip_ratio/low_min": "the smallest share of a sequence, averaged over micro-batches: not the minimum of the "
    "step, which AsyncGRPOTrainer has",
    "clip_ratio/high_max": "the largest share of a sequence, averaged over micro-batches: not the maximum of the "
    "step, which AsyncGRPOTrainer has",
}


_CLIPPED = ("loss", "clip_ratio/*", "cispo_clip_ratio", "vespo/*")
_NEEDS = {"current_logprobs": (*_CLIPPED, "kl"), "advantages": _CLIPPED}


def _window(call: Call[Settings]) -> Evaluation:
    """The metrics and weights of TRL for one generation batch that is one accumulation window.

    It also reads from `extra`: `entropy`, `reference_logprobs`, `rank` (rows,), the process of each row (default: one process).
    NaN in rollout means that the engine gave no log-prob. A batch without old uses current, as TRL does when steps are aligned.
    `weights`: the ratio, None without correction. `mask`: the tokens that the mask mode and the off-policy mask leave.
    """
    settings, arrays, groups = call.settings, call.batch, call.groups()
    ratio, metrics = None, dict[str, float]()
    if settings.corrected:
        old, rollout = (single(arrays.needed(name)) for name in ("old_logprobs", "rollout_logprobs"))
        ratio = importance_ratio(old, rollout, arrays.mask, settings)
        ranks = np.asarray(arrays.extra.get("rank", np.zeros(len(arrays.mask))))
        processes = [np.flatnonzero(ranks == rank) for rank in np.unique(ranks)]
        metrics = sampling_metrics(old - rollout, ratio, arrays.mask, processes, settings)
    inputs = _inputs(arrays, ratio, settings)
    window = Accumulation(len(groups), int(arrays.mask.sum()))
    steps = [micro_step(rows_of(inputs, rows), settings, window) for rows in groups]
    losses = {"loss": sum(step.loss for step in steps)}
    left = arrays.mask if inputs.kept is None else arrays.mask & inputs.kept
    if ratio is not None and settings.vllm_importance_sampling_mode.endswith("mask"):
        left = left & (ratio > 0)
    return Evaluation(
        metrics=metrics | _averaged(steps) | losses,
        weights=ratio if ratio is None or settings.per_sequence else ratio * arrays.mask,
        mask=left,
        losses=losses,
        arrays={} if ratio is None else {"importance_sampling_ratio": ratio},
    )


def _inputs(arrays: DialectBatch, ratio: Singles | None, s: Settings) -> Inputs:
    current = single(arrays.needed("current_logprobs"))
    old = current if arrays.old_logprobs is None else single(arrays.old_logprobs)
    values = single(arrays.needed("advantages"))
    one = np.take_along_axis(values, arrays.mask.argmax(axis=1)[:, None], axis=1)
    advantages = one if ((values == one) | ~arrays.mask).all() else values
    kept = None
    if s.off_policy_mask_threshold is not None:
        earlier = old if arrays.rollout_logprobs is None else single(arrays.rollout_logprobs)
        kept = kept_sequences(advantages, earlier, current, arrays.mask, s.off_policy_mask_threshold)
    entropy, reference = (arrays.extra.get(name) for name in ("entropy", "reference_logprobs"))
    return Inputs(
        old=old,
        current=current,
        mask=arrays.mask,
        advantages=advantages,
        ratio=ratio,
        kept=kept,
        entropy=None if entropy is None else single(entropy),
        reference=None if reference is None else single(reference),
    )


def _averaged(steps: Sequence[Step]) -> dict[str, float]:
    """The metrics of TRL's log line: means over the micro-batches that have a value. A name without any is left out."""
    means = {}
    for name in steps[0].metrics:
        values = [value for step in steps if not math.isnan(value := step.metrics[name])]
        if values:
            means[name] = sum(values) / len(values)
    return means


evaluate = evaluator(
    parse, _window, needs=lambda settings: _NEEDS if settings.off_policy_mask_threshold is None else {}
)
