"""Where slime and miles keep what the stand-ins stand for, the ranks a process can have, and the arguments of a training."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

VOCABULARY = 13
_MEGATRON, _SHARED = "miles.backends.megatron_utils", "miles.backends.training_utils"
PLACES: Mapping[str, Mapping[str, str]] = {
    "slime": {
        "rollout_metrics": "slime.observability.rollout_metrics",
        "train_metrics": "slime.observability.train_metric_utils",
        "tensorize": "slime.observability.rollout_data_utils",
        "log": "slime.observability.logging_utils",
        "types": "slime.utils.types",
        "misc": "slime.utils.misc",
        "ppo": "slime.utils.ppo_utils",
        "centering": "slime.utils.score_centering",
        "data": "slime.utils.data",
        "cp_utils": "slime.backends.megatron_utils.cp_utils",
        "scores": "slime.backends.megatron_utils.loss",
        "losses": "slime.backends.megatron_utils.loss",
        "tis": "slime.backends.megatron_utils.loss",
        "loss": "slime.backends.megatron_utils.loss",
        "model": "slime.backends.megatron_utils.model",
        "actor": "slime.backends.megatron_utils.actor",
    },
    "miles": {
        "rollout_metrics": "miles.ray.rollout.metrics",
        "train_metrics": f"{_SHARED}.log_utils",
        "shards": "miles.ray.rollout.train_data_conversion",
        "server": "miles.ray.rollout.rollout_server",
        "log": "miles.utils.tracking_utils.tracking",
        "types": "miles.utils.types",
        "misc": "miles.utils.misc",
        "data": "miles.utils.data",
        "parallel": f"{_SHARED}.parallel",
        "cp_utils": f"{_SHARED}.cp_utils",
        "scores": f"{_SHARED}.loss_hub.logit_processors",
        "losses": f"{_SHARED}.loss_hub.losses",
        "tis": f"{_SHARED}.loss_hub.corrections",
        "loss": f"{_SHARED}.loss",
        "model": f"{_MEGATRON}.model",
        "actor": f"{_MEGATRON}.actor",
        "fsdp_actor": "miles.backends.fsdp_utils.actor",
    },
}


@dataclass
class Ranks:
    """Where the process stands among the ranks, as megatron.core.mpu or miles' ParallelState would tell."""

    cp_size: int = 1
    cp_rank: int = 0
    tp_rank: int = 0
    is_last_stage: bool = True
    dp_rank: int = 0


class StandIn:
    """One trainer's modules. `at(place)` is a module of PLACES as it is now, patched or not."""

    def __init__(self, trainer: str, ranks: Ranks) -> None:
        self.trainer, self.ranks, self.places = trainer, ranks, PLACES[trainer]
        self.logged: list[dict[str, Any]] = []
        self.step_name = "train_one_step"  # another version may call it otherwise

    @property
    def is_slime(self) -> bool:
        return self.trainer == "slime"

    def at(self, place: str) -> Any:
        return importlib.import_module(self.places[place])


def arguments(**given: Any) -> SimpleNamespace:
    """Arguments of a trainer, those that are read by the stand-ins or by slime where the adapter looks."""
    defaults: dict[str, Any] = {
        "engines_checked": 0,
        "colocate": False, "update_weights_interval": 1, "keep_old_actor": False, "reward_key": None, "kl_coef": 0.0,
        "use_rollout_logprobs": False, "get_mismatch_metrics": False, "use_tis": False, "tis_clip": 2.0, "tis_clip_low": 0.0,
        "custom_tis_function_path": None, "rollout_data_postprocess_path": None, "custom_rollout_log_function_path": None,
        "custom_megatron_init_path": None, "load_debug_rollout_data": None, "recompute_loss_function": False,
        "eps_clip": 0.2, "with_ref": True, "skip_actor_forward_only": False, "wandb_key": "secret" * 6, "release_train": False,
        "rollout_temperature": 1.0, "calculate_per_token_loss": False, "qkv_format": "thd", "num_steps_per_rollout": 2,
        "samples_per_rollout": 8, "n_samples_per_prompt": 2, "seed": 3, "asynchronous": False, "fsdp": False,
        "resumed_calls": False, "use_score_centering": False, "allgather_cp": False,
    }  # fmt: skip
    return SimpleNamespace(**{**defaults, **given})
