"""TRL's GRPOConfig: the vLLM importance-sampling correction, the off-policy mask, and the settings of the loss."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from ..settings import Rule, check, checked_version, read, setting

VERSIONS = ("1.16.0",)

MODES = ("token_truncate", "token_mask", "sequence_truncate", "sequence_mask")
CLIPPED_LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo")
LOSSES = (*CLIPPED_LOSSES, "cispo", "sapo", "vespo")


@dataclass(frozen=True)
class Settings:
    """GRPOConfig's arguments under their own names. `use_vllm` None counts as on, see `parse`."""

    use_vllm: bool | None = setting(None)
    vllm_importance_sampling_correction: bool = setting(True)
    vllm_importance_sampling_mode: str = setting("sequence_mask", *MODES)
    vllm_importance_sampling_clip_max: float | None = setting(3.0)
    vllm_importance_sampling_clip_min: float | None = setting(None)
    vllm_importance_sampling_cap: float | None = setting(None)
    off_policy_mask_threshold: float | None = setting(None)
    importance_sampling_level: str = setting("token", "token", "sequence")
    loss_type: str = setting("dapo", *LOSSES)
    epsilon: float = setting(0.2)
    epsilon_high: float | None = setting(None)
    delta: float | None = setting(None)
    beta: float = setting(0.0)
    use_bias_correction_kl: bool = setting(True)
    sapo_temperature_pos: float = setting(1.0)
    sapo_temperature_neg: float = setting(1.05)
    vespo_k_pos: float = setting(2.0)
    vespo_lambda_pos: float = setting(3.0)
    vespo_k_neg: float = setting(3.0)
    vespo_lambda_neg: float = setting(2.0)
    top_entropy_quantile: float = setting(1.0)
    max_completion_length: int | None = setting(512)
    top_p: float = setting(1.0)
    top_k: int = setting(0)
    min_p: float | None = setting(None)
    repetition_penalty: float = setting(1.0)
    warnings: tuple[str, ...] = ()

    @property
    def corrected(self) -> bool:
        """Whether TRL computes and applies the importance-sampling ratio."""
        return self.use_vllm is not False and self.vllm_importance_sampling_correction

    @property
    def per_sequence(self) -> bool:
        """Whether there is one ratio per sequence, the product of its tokens' ratios."""
        return self.vllm_importance_sampling_mode.startswith("sequence")

    @property
    def bounds(self) -> tuple[float, float]:
        """(C_min, C_max); infinite if not set."""
        low, high = self.vllm_importance_sampling_clip_min, self.vllm_importance_sampling_clip_max
        return -inf if low is None else low, inf if high is None else high

    @property
    def clip_high(self) -> float:
        """The PPO ratio is clipped at 1 + clip_high (CISPO: at clip_high)."""
        return self.epsilon if self.epsilon_high is None else self.epsilon_high


def parse(config: Mapping[str, Any], version: str | None = None) -> Settings:
    """Settings from GRPOConfig's arguments. ConfigError for settings that TRL rejects at start or at its first batch.

    TRL's own default for use_vllm is false. Arguments without it are read as on here, because a recorded batch has rollout
    log-probs. Arguments that no correction reads are ignored.
    """
    checked_version("1.16.0" if version == "1.16" else version, VERSIONS)
    settings, notes = read(Settings, config), list[str]()
    cap = settings.vllm_importance_sampling_cap
    if cap is not None:
        notes.append("vllm_importance_sampling_cap is deprecated: it replaces vllm_importance_sampling_clip_max")
        settings = replace(settings, vllm_importance_sampling_clip_max=cap, vllm_importance_sampling_cap=None)
    check(settings, _RULES)
    return replace(settings, warnings=(*notes, *(note for holds, note in _silent(settings) if holds)))


def _silent(s: Settings) -> tuple[tuple[bool, str], ...]:
    """(whether it applies, a text) for each setting that TRL accepts silently although it does harm."""
    truncated = [name for name in _SAMPLING if getattr(s, name) != _SAMPLING[name]]
    return (
        (
            s.use_vllm is False and s.off_policy_mask_threshold is None,
            "nothing corrects the mismatch: use_vllm is false",
        ),
        (
            s.corrected and s.vllm_importance_sampling_mode.endswith("mask") and s.bounds == (-inf, inf),
            f"mode {s.vllm_importance_sampling_mode} without bounds masks nothing",
        ),
        (
            s.off_policy_mask_threshold is not None and s.off_policy_mask_threshold <= 0,
            "off_policy_mask_threshold should be positive: at or below 0 it drops sequences that match",
        ),
        (
            bool(truncated) and s.use_vllm is not False,
            f"{', '.join(truncated)} changes sampling but not the trainer's log-probs: this alone makes a one-sided mismatch",
        ),
        (
            s.loss_type == "luspo" and s.importance_sampling_level != "sequence",
            "luspo is designed for importance_sampling_level 'sequence'",
        ),
        (
            s.loss_type == "vespo" and s.importance_sampling_level != "token",
            "vespo weighs sequences by itself: importance_sampling_level should be 'token'",
        ),
        (
            s.importance_sampling_level == "sequence" and s.loss_type in ("bnpo", "dr_grpo", "dapo", "cispo"),
            f"loss_type {s.loss_type} with importance_sampling_level 'sequence' weighs sequences by their length",
        ),
    )


_SAMPLING = {"top_p": 1.0, "top_k": 0, "min_p": None, "repetition_penalty": 1.0}
_MIN, _MAX = "vllm_importance_sampling_clip_min", "vllm_importance_sampling_clip_max"

_RULES = (
    Rule(_MIN, lambda s: s.bounds[0] >= s.bounds[1], f"below {_MAX}"),
    Rule(
        _MAX,
        lambda s: (
            s.vllm_importance_sampling_correction
            and s.vllm_importance_sampling_mode.endswith("truncate")
            and s.bounds == (-inf, inf)
        ),
        f"a number, or {_MIN} beside it, in a truncate mode",
    ),
    Rule(
        "vllm_importance_sampling_mode",
        lambda s: s.loss_type == "vespo" and s.corrected and s.per_sequence,
        "'token_truncate' or 'token_mask' beside loss_type 'vespo'",
    ),
)
