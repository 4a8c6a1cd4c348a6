"""The causes that are right for each fault. They follow from its mechanism, and were written down before any run was scored.

Revised after a first look at the answers to a quarter of the family `recurrent`, each by an argument on its mechanism:
passing_load is never decided (a pair of raised steps can be missed syncs), position_onset may be near_limit at its weakest
(all responses are of one length), an id that vanishes may be shifted, different_prompt is decided only where the gap fades,
min_tokens is stronger, and token_bias is a bias of logits, not of log-probs. Codes that the catalogue got later were added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

HEALTHY = "none"


@dataclass(frozen=True)
class Accepted:
    """Codes of causes that name a fault."""

    first: frozenset[str]
    """Those that are the truth."""
    generic: frozenset[str] = frozenset()
    """Those that count only where the record cannot say more (Case.decided is False)."""


def _of(first: str, generic: str = "") -> Accepted:
    return Accepted(frozenset(first.split()), frozenset(generic.split()))


ACCEPTED: Mapping[str, Accepted] = {
    HEALTHY: _of(""),
    # of weights over time
    "never_synced": _of("never_synced", "different_weights sync_broke"),
    "sync_broke": _of("sync_broke", "never_synced different_weights corrupted_load lasting_change"),
    "sync_every_k": _of("missed_syncs", "version_lag different_weights passing_change"),
    "version_lag": _of("version_lag stale_weights"),
    "lag_unrecorded": _of("version_lag stale_weights", "different_weights missed_syncs never_synced"),
    "corrupted_load": _of("corrupted_load", "lasting_change different_weights sync_broke"),
    "passing_load": _of("passing_change", "corrupted_load different_weights missed_syncs"),
    "adapter_missing": _of("never_synced adapter_scale", "different_weights"),
    "adapter_scaled": _of("different_weights adapter_scale", "corrupted_load never_synced"),
    "part_stale": _of("never_synced sync_broke", "different_weights corrupted_load biased_ids"),
    "rows_shifted": _of("corrupted_load different_weights token_rows", "biased_ids lasting_change"),
    "token_bias": _of("biased_ids", "token_rows"),
    "aging_state": _of("different_weights ageing_state", "corrupted_load"),
    "setting_changed": _of("lasting_change corrupted_load", "different_weights"),
    "stuck_replica": _of("stuck_replica"),
    "stuck_replica_unlabelled": _of("stuck_replica outlier_sequences outlier_prompts", "different_weights never_synced"),
    "odd_rank": _of("odd_rank"),
    "switch_inside": _of("switch_inside", "outlier_sequences different_weights"),
    "switch_recorded": _of("switch_inside version_lag old_keys"),
    # of sampling and its report
    "trainer_temperature": _of("trainer_temperature"),
    "reported_raw": _of("reported_raw"),
    "silent_sampling": _of("silent_sampling"),
    "truncation": _of("truncation"),
    "penalty": _of("penalty"),
    "min_tokens": _of("banned_tokens", "truncation"),
    "banned_tokens": _of("banned_tokens", "truncation"),
    "grammar": _of("grammar", "banned_tokens truncation"),
    # of inputs
    "different_prompt": _of("different_prompt", "different_weights outlier_prompts stale_prefix"),
    "some_prompts": _of("outlier_prompts different_prompt", "outlier_sequences"),
    "padding_visible": _of("outlier_prompts outlier_sequences different_prompt", "different_weights"),
    "position_ids": _of("position_onset", "different_prompt different_weights"),
    "position_onset": _of("position_onset", "retokenised near_limit different_weights"),
    "packing_leak": _of("packing_leak"),
    "packing_unrecorded": _of("outlier_sequences outlier_prompts", "different_prompt different_weights packing_leak"),
    "stale_prefix": _of("stale_prefix cached_prefix", "different_prompt outlier_prompts"),
    "cached_prefix": _of("cached_prefix stale_prefix"),
    "retokenised": _of("retokenised", "outlier_sequences shifted"),
    "other_ids": _of("other_ids retokenised"),
    "worst_turn": _of("worst_turn", "retokenised position_onset"),
    "turns_unrecorded": _of("worst_turn retokenised position_onset", "switch_inside outlier_sequences different_weights"),
    "unscored_tokens": _of("unscored_tokens"),
    "unscored_filled": _of("unscored_tokens filler_values"),
    # of numerics
    "dropout": _of("different_weights train_mode"),
    "quantised": _of("different_weights"),
    "kv_precision": _of("different_weights", "position_onset"),
    "router_flips": _of("router_flips other_experts", "different_weights"),
    "sharpness": _of("different_weights", "trainer_temperature"),
    # of the record
    "filler_values": _of("filler_values placeholders", "unscored_tokens"),
    "sentinels": _of("filler_values non_finite", "unscored_tokens end_token"),
    "non_finite": _of("non_finite"),
    "shifted": _of("shifted"),
    "permuted_rows": _of("permuted_rows"),
    "stored_precision": _of("stored_precision"),
    # of the families tiny_llama and moe
    "stale_recorded": _of("never_synced sync_broke version_lag stale_weights"),
    "other_tensor": _of("corrupted_load different_weights token_rows", "biased_ids lasting_change never_synced"),
    "expert_wrong": _of("corrupted_load different_weights", "router_flips biased_ids"),
    "attention_mask": _of("different_prompt", "different_weights outlier_prompts"),
    "rope_base": _of("position_onset different_weights", "different_prompt"),
    "mask_off_by_one": _of("unscored_tokens end_token filler_values"),
    "replay_inert": _of("router_flips other_experts", "different_weights"),
    # of the family smollm2, by the names of tests/faults
    "end_token": _of("end_token"),
    "near_limit": _of("near_limit"),
    **dict.fromkeys(("top_p", "top_k", "min_p"), _of("truncation")),
    **dict.fromkeys(("silent_temperature", "silent_top_p", "silent_top_k"), _of("silent_sampling")),
    **dict.fromkeys(("repetition_penalty", "presence_penalty"), _of("penalty")),
    "stale_prefix_cache": _of("stale_prefix", "different_prompt outlier_prompts"),
    "chunk_boundary": _of("chunk_boundary position_onset"),
    "drift_without_update": _of("never_synced sync_broke ageing_state", "different_weights"),
    "outlier_prompts": _of("outlier_prompts", "outlier_sequences"),
    **dict.fromkeys(("lora_merge", "weight_quantisation", "batch_dependence"), _of("different_weights")),
}  # fmt: skip


def truth(fault: str, *, decided: bool) -> frozenset[str]:
    """The codes that name a fault; the generic ones only where the record cannot say more."""
    own = ACCEPTED[fault]
    return own.first if decided else own.first | own.generic
