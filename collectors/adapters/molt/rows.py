"""Rows of the Record from MOLT's experiences, whose layout is OpenRLHF's, and the messages about columns that they lack."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...foreign import Tensor
from ..openrlhf import rows as openrlhf
from ..sampled_spans import SampledFirst

VERSIONS = (
    "not known to MOLT's trainer: it samples while it trains, and no sample has the number of a broadcast of weights"
)
NO_VERSIONS = (
    "MOLT does not note which weights sampled a sequence, so lag is not recorded; attach(..., rollout_version=...) can "
    "supply the version"
)
NO_ROLLOUT = (
    "MOLT asks vLLM for log-probs only if it corrects with them or centers the score, so neither mismatch nor total is "
    "recorded; --algo.advantage.is_correction_level token records them, and so does --algo.advantage.score_centering_top_k"
)
OLD_IS_CURRENT = (
    "with --train.force_on_policy MOLT computes no old log-probs and its loss uses the detached current ones; the record has "
    "these as old"
)
_SETTINGS = {
    "algo.advantage": "estimator is_correction_level is_correction_mode is_correction_gating is_correction_threshold "
    "score_centering_top_k",
    "rollout": "temperature top_p n_samples_per_prompt batch_size",
    "train": "force_on_policy force_sync_mode async_queue_size partial_rollout_enable routing_replay batch_size "
    "micro_batch_size max_epochs dynamic_batch_enable",
    "actor": "model_name_or_path loss_mode loss_agg_mode eps_clip_low_high dual_clip entropy_coef freezing_steps",
    "fsdp": "param_dtype attn_implementation tp_size cp_size ep_size",
    "vllm": "num_engines tensor_parallel_size enable_prefix_caching",
}


def samples_of(items: Sequence[Any], step: int, rank: int) -> dict[int, openrlhf.Sample]:
    """The facts of each sample by identity of the replay buffer's item. MOLT names the group of a sample itself."""
    found = openrlhf.samples_of(items, step, rank)
    named = {id(item): item.group_ids[0] for item in items if item.group_ids}
    return {key: replace(sample, group_id=named.get(key, sample.group_id)) for key, sample in found.items()}


def columns(
    experience: Any, given: Mapping[str, Tensor], entropy: Tensor | None, *, is_first_visit: bool, is_current: bool
) -> dict[str, Tensor]:
    """Per-token columns of a micro-batch, each row from its first action on; top-k at the first visit.

    given: the arguments of the loss. is_current: the loss uses current as old.
    """
    own = openrlhf.columns(experience, given, entropy, is_first_visit=is_first_visit)
    train, rollout = given.get("top_log_probs"), given.get("rollout_top_log_probs")
    if train is None or rollout is None or not is_first_visit:
        return own
    moved = SampledFirst(given["action_mask"])
    ids = moved(experience.rollout_top_ids.permute(0, 2, 1))
    topk = {
        "topk_ids": sys.modules["torch"].where(moved.mask[..., None], ids, -1),  # MOLT fills tokens of tools with id 0
        "rollout_topk_logprobs": moved(rollout),
        "current_topk_logprobs": moved(train),
    }
    return own | topk | ({"old_topk_logprobs": topk["current_topk_logprobs"]} if is_current else {})


def frozen_steps(args: Any) -> int:
    """The number of first steps in which only the critic trains."""
    return int(getattr(args.actor, "freezing_steps", 0)) if args.algo.advantage.estimator == "gae" else 0


def is_a_copy(strategy: Any) -> bool:
    """True if this rank is not the first of the ranks with the same tokens."""
    return any(getattr(strategy, f"{kind}_size", 1) > 1 and strategy._get_automodel_rank(kind) for kind in ("cp", "tp"))


def kept_settings(args: Any) -> dict[str, Any]:
    """The settings that run.json keeps, by their names on the command line."""
    return openrlhf.settings(args, _SETTINGS)
