"""Between NeMo-RL's settings and our Correction, both ways; what NeMo-RL cannot say is a ConfigError that says so.

NeMo-RL limits no log-ratio: a weight beyond exp(88.7) is 0 there, where ours is at its bound.
"""

from collections.abc import Mapping
from dataclasses import replace
from math import inf
from typing import Any

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, Reject, Step, Weigh, WeightedGap
from ...distribution import Level
from ..settings import changed, yaml_text
from .settings import Settings

LEVELS: Mapping[str, Level] = {"token": "token", "sequence": "sequence", "sequence_mean": "geometric"}
NO_BOUND = 1e9
"""An upper bound for a truncation that has none but must name one."""


def correction_of(settings: Settings) -> Correction:
    """The steps NeMo-RL takes. The sequence error filter judges by the mean of exp(abs(x)), so it is none: ConfigError."""
    if settings.seq_logprob_error_threshold is not None:
        raise ConfigError("seq_logprob_error_threshold judges by exp(abs(x)); no correction does: evaluate the dialect")
    gap: WeightedGap = "total" if settings.force_on_policy_ratio else "mismatch"
    return Correction("nemo_rl", tuple(_steps(settings)) if settings.use_importance_sampling_correction else (), gap)


def settings_for(correction: Correction) -> Settings:
    """NeMo-RL's settings for a correction. Geometric weights need pull request 2269; on main a product weight comes with
    GSPO's ratio, and weights on current / rollout with force_on_policy_ratio."""
    if not correction.steps:
        return Settings()
    weigh, rest = correction.steps[0], correction.steps[1:]
    if not isinstance(weigh, Weigh):
        raise _unsayable("rejection without importance weights")
    settings = Settings(
        use_importance_sampling_correction=True,
        force_on_policy_ratio=correction.gap == "total",
        **_level(weigh.level),
        **(_sequence_mask(weigh, rest[0]) if rest else _bounds(weigh)),
    )
    if len(rest) > 1:
        raise _unsayable("more than one rejection")
    return replace(settings, version="pr2269") if settings.is_correction_level else settings


def _steps(settings: Settings) -> list[Step]:
    level, (low, high) = LEVELS[settings.level], settings.bounds
    if settings.truncation is None:
        return [Weigh(level)]
    if settings.truncation == "seq-mask-tis":
        return [Weigh("token"), Reject("weight", "mean", low, high)]
    return [Weigh(level, low, high, "clamp" if settings.truncation == "tis" else "zero")]


def _level(level: Level) -> dict[str, Any]:
    if level == "token":
        return {}
    if level == "geometric":
        return {"is_correction_level": "sequence_mean"}
    return {"sequence_level_importance_ratios": True, "token_level_loss": False}


def _bounds(weigh: Weigh) -> dict[str, Any]:
    if (weigh.low, weigh.high) == (0.0, inf):
        return {}
    clamped = weigh.outside == "clamp"
    return _truncation("tis" if clamped else "icepop", weigh.low or (None if clamped else 0.0), weigh.high)


def _sequence_mask(weigh: Weigh, step: Step) -> dict[str, Any]:
    if not isinstance(step, Reject) or (step.of, step.by) != ("weight", "mean"):
        raise _unsayable(f"rejection of {step.of} by {step.by}" if isinstance(step, Reject) else "normalised weights")
    if (weigh.level, weigh.low, weigh.high) != ("token", 0.0, inf):
        raise _unsayable("sequences rejected beside bounded weights")
    return _truncation("seq-mask-tis", max(step.low, 0.0), step.high)


def _truncation(kind: str, low: float | None, high: float) -> dict[str, Any]:
    name = "truncated_importance_sampling"
    return {f"{name}_type": kind, f"{name}_ratio": min(high, NO_BOUND), f"{name}_ratio_min": low}


def _unsayable(what: str) -> ConfigError:
    return ConfigError(f"nemo_rl has no setting for {what}; choose another correction")


def write(correction: Settings | Correction) -> str:
    """The correction as YAML sections; keys at their defaults are left out. What else it changes stands above as comments."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    values = changed(settings)
    threshold = values.pop("seq_logprob_error_threshold", None)
    if settings.truncation or settings.level != "token":
        values["use_importance_sampling_correction"] = settings.use_importance_sampling_correction
    tree: dict[str, Any] = {"loss_fn": values} if values else {}
    if threshold is not None:
        tree["grpo"] = {"seq_logprob_error_threshold": threshold}
    return "".join(f"# {note}\n" for note in _besides(settings)) + yaml_text(tree)


def _besides(settings: Settings) -> list[str]:
    found = (
        (
            settings.is_correction_level is not None,
            "is_correction_level needs pull request 2269: main reads it nowhere",
        ),
        (
            settings.level == "sequence" and settings.is_correction_level is None,
            "the PPO ratio becomes one per sequence, too (GSPO)",
        ),
        (
            settings.force_on_policy_ratio,
            "needs one optimizer step per rollout batch: the PPO ratio is 1, and current stands in for old",
        ),
    )
    return [note for holds, note in found if holds]
