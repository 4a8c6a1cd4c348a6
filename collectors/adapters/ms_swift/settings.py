"""The configuration of an ms-swift trainer for run.json."""

from __future__ import annotations

from typing import Any

from ...foreign import Trainer

_OF_RUN = (
    "model", "model_type", "torch_dtype", "loss_type", "advantage_estimator", "num_generations", "num_iterations",
    "steps_per_generation", "gradient_accumulation_steps", "per_device_train_batch_size", "micro_batch_size",
    "global_batch_size", "beta", "epsilon", "epsilon_high", "importance_sampling_level",
    "rollout_importance_sampling_mode", "rollout_importance_sampling_threshold", "off_policy_sequence_mask_delta",
    "overlong_filter", "top_entropy_quantile", "dynamic_sample", "async_generate", "use_vllm", "vllm_mode",
    "router_replay_mode", "tuner_type", "padding_free", "tensor_model_parallel_size", "context_parallel_size",
    "pipeline_model_parallel_size", "sequence_parallel_size", "use_liger_kernel",
)  # fmt: skip
_SAMPLING = (
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "max_completion_length",
    "max_turns",
)


def settings(trainer: Trainer) -> dict[str, Any]:
    """The settings that decide the gap between engine and trainer; without those that this version lacks."""
    args = trainer.args
    settings = {name: getattr(args, name) for name in _OF_RUN if getattr(args, name, None) is not None}
    sampling = {name: getattr(args, name) for name in _SAMPLING if getattr(args, name, None) is not None}
    return {
        "trainer_class": f"{type(trainer).__module__}.{type(trainer).__qualname__}",
        **settings,
        "sampling": sampling,
    }
