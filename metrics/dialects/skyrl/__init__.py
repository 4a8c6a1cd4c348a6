"""SkyRL (NovaSky-AI/SkyRL): its off-policy correction, rollout-anchored losses, and the metrics that it logs.

The correction and loss files of 0.4.0 and of the main branch of August 2026 are byte-identical. Version 0.3.0 computes the
same except for CISPO, which it always anchors on old log-probs.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from ratioscope.arrays import Array

from ..batch import DialectBatch
from ..evaluation import Call, Evaluation, evaluator
from .correction import write
from .settings import VERSIONS, Settings, parse
from .step import MicroBatch, batch_tokens, logged, optimizer_steps, training_batch_differences

__all__ = ["CANONICAL", "NOTES", "PRESETS", "VERSIONS", "evaluate", "parse", "write"]

PRESETS: dict[str, dict[str, Any]] = {
    "none": {},
    "geometric_mask": {"off_policy_correction": {"sequence_mask_metric": "geometric"}},
    "product_mask": {"off_policy_correction": {"sequence_mask_metric": "product"}},
    "token_tis": {"off_policy_correction": {"tis_ratio_type": "token"}},
    "sequence_tis": {"off_policy_correction": {"tis_ratio_type": "sequence"}},
    "token_mask": {"off_policy_correction": {"token_mask_is_threshold_low": 0.5, "token_mask_is_threshold_high": 2.0}},
    "outlier_mask": {
        "off_policy_correction": {"outlier_token_is_threshold_low": 1e-4, "outlier_token_is_threshold_high": 100.0}
    },
    "rollout_is": {"policy_loss_type": "rollout_is"},
    "cispo_rollout": {"policy_loss_type": "cispo", "cispo": {"cispo_anchor": "rollout"}},
    "dppo_tv": {"policy_loss_type": "dppo"},
    "dppo_kl": {"policy_loss_type": "dppo", "dppo": {"dppo_type": "binary_kl", "delta_low": 0.05, "delta_high": 0.05}},
}
"""Preset name -> `trainer.algorithm`. The values are SkyRL's defaults or those of its documentation."""

_LOSS = "policy/loss_metrics/"
_DROPPED = ("masked", "over_high", "under_low")
_TRAINING_BATCH = "policy/rollout_train_logprobs_abs_diff_"
_MINI_BATCH = "policy/minibatch_rollout_logprobs_abs_diff_"

CANONICAL: dict[str, str | None] = {
    f"{_TRAINING_BATCH}mean": "mismatch/abs_log_ratio",
    f"{_TRAINING_BATCH}max": "mismatch/max_abs_log_ratio",
    **dict.fromkeys((f"{_TRAINING_BATCH}min", f"{_TRAINING_BATCH}std")),
    f"{_MINI_BATCH}mean": "total/abs_log_ratio",
    f"{_MINI_BATCH}max": "total/max_abs_log_ratio",
    **dict.fromkeys((f"{_MINI_BATCH}min", f"{_MINI_BATCH}std")),
    f"{_LOSS}is_ratio_mean": "mismatch/mean_weight_token",
    **{f"{_LOSS}is_ratio_{name}": None for name in ("std", "max", "min")},
    **{f"{_LOSS}outlier_seq_{name}_ratio": None for name in _DROPPED},
    **{f"{_LOSS}{name}": None for name in ("token_mask_ratio", "tis_token_clip_high_ratio", "tis_seq_clip_high_ratio")},
    **{f"{_LOSS}{kind}_sequence_mask_{name}_ratio": None for kind in ("geo", "product") for name in _DROPPED},
    **{f"{_LOSS}{name}": None for name in ("clip_ratio", "importance_ratio")},
    **{f"{_LOSS}cispo/{name}": None for name in ("ratio_mean", "ratio_clamped_mean", "ratio_max", "ratio_min")},
    "policy/policy_loss": None,
}

_MEAN_OF_MEANS = (
    "an unweighted mean over micro-batches, ranks and mini-batches: a token of a small micro-batch weighs more"
)
_DILUTED = "over the padded array with masked positions as 0"
_EMPTY_ROWS = "rows without a valid token count as kept, so padding rows dilute it"

NOTES: dict[str, str] = {
    f"{_TRAINING_BATCH}std": "of the absolute difference, so not the spread of the log-ratio; nan for a single token",
    f"{_TRAINING_BATCH}mean": "absent if SkyRL skips the policy forward (rollout_is, dppo, cispo on rollout, unless "
    "a correction or use_kl_in_reward needs it); without use_conversation_multi_turn (on unless set) an appended "
    "end-of-sequence token has rollout log-prob 0 and counts; a missing or infinite log-prob is -9999",
    f"{_MINI_BATCH}mean": f"of abs(current - rollout) in the update; {_MEAN_OF_MEANS}; empty padding micro-batches pull it "
    "to 0 (FSDP)",
    f"{_MINI_BATCH}std": "from averaged moments of the absolute difference, so not the spread of the log-ratio",
    f"{_MINI_BATCH}min": f"{_DILUTED}: 0 as soon as one position is masked or padded",
    f"{_LOSS}is_ratio_mean": f"log-ratio clamped to +-20 first; {_MEAN_OF_MEANS}; absent without off_policy_correction",
    f"{_LOSS}is_ratio_std": f"{_DILUTED}: it mostly measures the share of padding (0.5 at half padding without a mismatch)",
    f"{_LOSS}is_ratio_max": "the largest clamped weight: at most exp(20) = 4.85e8, and 0 if every token is masked",
    f"{_LOSS}is_ratio_min": f"{_DILUTED}: 0 as soon as one position is masked or padded",
    f"{_LOSS}tis_token_clip_high_ratio": "a share of the tokens that the outlier and token masks leave, not of all tokens",
    f"{_LOSS}tis_seq_clip_high_ratio": f"masked tokens are not in the product; {_EMPTY_ROWS}",
    f"{_LOSS}token_mask_ratio": "the share outside the two thresholds among the tokens that the outlier mask leaves",
    **{f"{_LOSS}outlier_seq_{name}_ratio": _EMPTY_ROWS for name in _DROPPED},
    **{
        f"{_LOSS}{kind}_sequence_mask_{name}_ratio": f"{_EMPTY_ROWS}; sequences that the outlier mask dropped do so too"
        for kind in ("geo", "product")
        for name in _DROPPED
    },
    f"{_LOSS}clip_ratio": "before the correction masks; the second clip of dual_clip is not counted; always 0 for sapo "
    "and kl_cov; absent with importance_sampling",
    f"{_LOSS}importance_ratio": "current / old, unclamped; nan if a micro-batch is fully masked",
    f"{_LOSS}cispo/ratio_mean": "the total gap with anchor rollout, the drift with anchor old",
    "policy/policy_loss": "divided by the counts before the correction masks, so masking shrinks it; ratioscope does "
    "not reproduce it if clip_cov drops tokens at random",
}


def _training_batch(call: Call[Settings]) -> Evaluation:
    """The metrics `policy/...` of SkyRL for one training batch, and the weights and mask of its correction.

    `weights`: the TIS weight; without TIS, the factor exp(current - rollout) of a loss anchored on the rollout policy, or None.
    `losses`: the sum over micro-batches. `arrays`: the loss per token before and after the correction. All versions compute
    the same. `micro_batches` replaces the configured micro-batches. `kind` has no effect.
    """
    arrays, settings = call.batch, _with_prompts(call.settings, call.batch)
    tokens = batch_tokens(arrays, settings)
    steps = optimizer_steps(tokens, settings, call.micro_batches) if tokens.mask.size else []
    parts = [part for step in steps for rank in step for part in rank]
    rows = len(tokens.mask)
    weights = _joined(parts, "weights", rows)
    mask = _joined(parts, "mask", rows, tokens.mask)
    losses = [part.metrics["policy_loss"] for part in parts if "policy_loss" in part.metrics]
    per_token = {f"loss_token_{when}": _joined(parts, f"loss_{when}", rows) for when in ("before", "after")}
    absent = [name for name in ("current_logprobs", "advantages") if getattr(arrays, name) is None]
    warnings = []
    if settings.corrects and tokens.rollout is None:
        warnings.append("the batch has no rollout_logprobs: SkyRL silently skips its correction")
    if absent:
        warnings.append("the batch lacks current_logprobs or advantages: the metrics of SkyRL's loss are left out")
    return Evaluation(
        metrics=training_batch_differences(tokens) | logged(steps),
        weights=weights,
        mask=arrays.mask if mask is None else mask > 0,
        warnings=tuple(warnings),
        losses={"policy_loss": sum(losses)} if losses else {},
        arrays={name: array for name, array in per_token.items() if array is not None},
        lacks=tuple(absent) if settings.anchors_on_rollout and weights is None else (),
    )


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


evaluate = evaluator(parse, _training_batch, "policy/")
