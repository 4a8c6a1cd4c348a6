"""What OpenRLHF's arguments and ranks decide about a recording, and what is said where they leave something out."""

from __future__ import annotations

from importlib import metadata
from typing import Any

VERSIONS = (
    "training steps: synchronous training samples with the weights that it trains; unknown with --train.async_enable"
)
NO_ROLLOUT = (
    "OpenRLHF asks vLLM for log-probs only where it corrects with them, so neither mismatch nor total is recorded; "
    "--algo.advantage.is_correction_level token (before 0.11.2: --algo.advantage.is_correction_enable) records them"
)
NO_VERSIONS = (
    "with --train.async_enable OpenRLHF does not say which weights sampled a sequence; they are at most async_queue_size + 1 "
    "steps old. attach(..., rollout_version=...) may tell"
)
NO_ENTROPY = (
    "before 0.11.2 OpenRLHF's entropy is that of temperature 1, not of the temperature that its log-probs are of; it is not "
    "recorded at another temperature"
)
_SETTINGS = {
    "algo.advantage": "estimator is_correction_level is_correction_mode is_correction_gating is_correction_threshold "
    "is_correction_enable is_correction_type",
    "rollout": "temperature top_p n_samples_per_prompt batch_size",
    "train": "async_enable partial_rollout_enable batch_size micro_batch_size max_epochs dynamic_batch_enable",
    "actor": "policy_loss_type eps_clip_low_high entropy_coef",
    "vllm": "num_engines tensor_parallel_size",
}


def frozen_steps(args: Any) -> int:
    """Steps that only the critic trains, first."""
    return max(0, int(getattr(args.critic, "freezing_steps", -1)) + 1)


def holds_the_copy(strategy: Any) -> bool:
    """Whether this rank is the first of those that hold the same tokens."""
    if getattr(strategy, "ring_attn_rank", 0):
        return False
    sharded = getattr(strategy, "ds_tensor_parallel_size", 1) > 1
    return not sharded or strategy.ds_device_mesh["tp"].get_local_rank() == 0


def release() -> tuple[int, ...]:
    """OpenRLHF's version as numbers; () if it cannot be told."""
    try:
        return tuple(int(part) for part in metadata.version("openrlhf").split(".") if part.isdecimal())
    except metadata.PackageNotFoundError:
        return ()


def settings(args: Any) -> dict[str, Any]:
    """Those worth keeping beside the data, by their names on the command line."""
    found: dict[str, Any] = {}
    for section, names in _SETTINGS.items():
        holder = args
        for part in section.split("."):
            holder = getattr(holder, part, None)
        found |= {
            f"{section}.{name}": getattr(holder, name)
            for name in names.split()
            if getattr(holder, name, None) is not None
        }
    return found
