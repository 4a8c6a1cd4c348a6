"""The band in which a trainer's loss lets the ratio of a token move, by its own settings, and the policy it divides by.

Losses that clip a mean over the sequence, and those that bound something else than the ratio, have none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .settings import section
from .trl.settings import CLIPPED_LOSSES

TrainerSettings = Any
"""The result of the dialect's `parse`. `Any`: each dialect has settings of its own type."""


@dataclass(frozen=True)
class ClipBand:
    """The clip of current over the anchor, per token."""

    low: float
    """The least ratio that the clip leaves as it is."""
    high: float
    """The largest one."""
    anchor: Literal["old", "rollout"] = "old"
    """The policy that current is divided by."""


def clip_band(name: str, settings: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    """The band of these settings; None if the loss clips no ratio of single tokens. config: the same as the trainer has it."""
    return _BANDS[name](settings, config)


def _verl(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    actor = section(section(config, "actor_rollout_ref"), "actor")
    mode = section(actor, "policy_loss").get("loss_mode") or "vanilla"
    if mode not in ("vanilla", "bypass_mode") or (mode == "bypass_mode" and s.loss_type != "ppo_clip"):
        return None
    return ClipBand(1 - s.clip.low, 1 + s.clip.high, "rollout" if s.bypass else "old")


def _slime(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    if s.advantage_estimator in ("gspo", "cispo"):
        return None
    low, high = s.clip_bounds
    return ClipBand(low, high, "rollout" if s.use_rollout_logprobs else "old")


def _skyrl(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    if s.policy_loss_type not in ("regular", "dual_clip", "rollout_is"):
        return None
    anchor: Literal["old", "rollout"] = "rollout" if s.anchors_on_rollout else "old"
    return ClipBand(1 - s.eps_clip_low, 1 + s.eps_clip_high, anchor)


def _nemo_rl(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    is_none = s.disable_ppo_ratio or s.force_on_policy_ratio or s.sequence_level_importance_ratios or s.use_cispo
    return None if is_none else ClipBand(1 - s.ratio_clip_min, 1 + s.ratio_clip_max)


def _areal(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    is_other = s.importance_sampling_level == "sequence" or s.use_sapo_loss or s.use_cispo_loss
    if is_other or s.prox_logp_method != "recompute":  # another old, which is not on record
        return None
    high = s.eps_clip if s.eps_clip_higher is None else s.eps_clip_higher
    return ClipBand(1 - s.eps_clip, 1 + high, "old" if s.decoupled or s.recompute_logprob else "rollout")


def _trl(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    if s.importance_sampling_level == "sequence" or s.loss_type not in CLIPPED_LOSSES:
        return None
    return ClipBand(1 - s.epsilon, 1 + s.clip_high)


def _fireworks(s: TrainerSettings, config: Mapping[str, Any]) -> ClipBand | None:
    if s.loss not in ("grpo", "dapo"):
        return None
    return ClipBand(1 - s.eps_clip, 1 + s.clip_high, "rollout" if s.anchor_logp == "rollout" else "old")


_BANDS: Mapping[str, Callable[[TrainerSettings, Mapping[str, Any]], ClipBand | None]] = {
    "verl": _verl, "slime": _slime, "skyrl": _skyrl, "nemo_rl": _nemo_rl, "areal": _areal, "trl": _trl, "fireworks": _fireworks,
}  # fmt: skip
"""Dialect -> the band of its settings."""
