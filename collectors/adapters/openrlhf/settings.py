"""OpenRLHF's arguments and ranks as far as they affect a recording, and the messages about columns that it lacks."""

from importlib import metadata
from typing import Any

VERSIONS = (
    "training steps at the last broadcast of weights to vLLM, with whose weights synchronous training samples; unknown with "
    "--train.async_enable"
)
NO_BROADCAST = (
    "no broadcast of weights to vLLM was seen since the run was resumed, so lag is not recorded. "
    "attach(..., rollout_version=...) can supply the version"
)
NO_ROLLOUT = (
    "OpenRLHF asks vLLM for log-probs only if it corrects with them, so neither mismatch nor total is recorded; "
    "--algo.advantage.is_correction_level token (before 0.11.2: --algo.advantage.is_correction_enable) records them"
)
NO_VERSIONS = (
    "with --train.async_enable it is not known which weights sampled a sequence; they are at most async_queue_size + 1 steps "
    "old. attach(..., rollout_version=...) can supply the version"
)
NO_ENTROPY = (
    "before 0.11.2 OpenRLHF computes entropy at temperature 1, not at the temperature of its log-probs; at another temperature "
    "it is not recorded"
)
_SETTINGS = {
    "algo.advantage": "estimator is_correction_level is_correction_mode is_correction_gating is_correction_threshold "
    "is_correction_enable is_correction_type",
    "rollout": "temperature top_p n_samples_per_prompt batch_size",
    "train": "async_enable partial_rollout_enable batch_size micro_batch_size max_epochs dynamic_batch_enable",
    "actor": "model_name_or_path policy_loss_type eps_clip_low_high entropy_coef",
    "ds": "param_dtype",
    "vllm": "num_engines tensor_parallel_size enable_prefix_caching",
}


def frozen_steps(args: Any) -> int:
    """The number of first steps in which only the critic trains."""
    return max(0, int(getattr(args.critic, "freezing_steps", -1)) + 1)


def holds_the_copy(strategy: Any) -> bool:
    """True if this rank is the first of the ranks with the same tokens."""
    if getattr(strategy, "ring_attn_rank", 0):
        return False
    sharded = getattr(strategy, "ds_tensor_parallel_size", 1) > 1
    return not sharded or strategy.ds_device_mesh["tp"].get_local_rank() == 0


def release() -> tuple[int, ...]:
    """OpenRLHF's version as numbers; () if not known."""
    try:
        return tuple(int(part) for part in metadata.version("openrlhf").split(".") if part.isdecimal())
    except metadata.PackageNotFoundError:
        return ()


def settings(args: Any) -> dict[str, Any]:
    """The settings that run.json keeps, by their names on the command line."""
    values: dict[str, Any] = {}
    for section, names in _SETTINGS.items():
        holder = args
        for part in section.split("."):
            holder = getattr(holder, part, None)
        values |= {
            f"{section}.{name}": getattr(holder, name)
            for name in names.split()
            if getattr(holder, name, None) is not None
        }
    return values
