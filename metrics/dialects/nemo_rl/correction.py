"""NeMo-RL's settings as a Correction, and a Correction as its settings; ConfigError if NeMo-RL has no such setting.

NeMo-RL limits no log-ratio: its weight beyond exp(88.7) is 0, while the weight of a Correction stays at its bound.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, CorrectionStep, Reject, Weigh, WeightedGap
from ...distribution import Level
from ..settings import changed, no_setting, yaml_text
from .settings import Settings

LEVELS: Mapping[str, Level] = {"token": "token", "sequence": "sequence", "sequence_mean": "geometric"}
_no_setting = partial(no_setting, "nemo_rl")
NO_BOUND = 1e9
"""An upper bound that no weight reaches, because NeMo-RL's truncation requires one."""


def correction_of(settings: Settings) -> Correction:
    """The steps that NeMo-RL takes. ConfigError for the sequence error filter: no Step rejects by the mean of exp(abs(x))."""
    if settings.seq_logprob_error_threshold is not None:
        raise ConfigError(
            "no correction rejects by exp(abs(x)), as seq_logprob_error_threshold does: evaluate the dialect"
        )
    gap: WeightedGap = "total" if settings.force_on_policy_ratio else "mismatch"
    return Correction("nemo_rl", tuple(_steps(settings)) if settings.use_importance_sampling_correction else (), gap)


def settings_for(correction: Correction) -> Settings:
    """NeMo-RL's settings for a correction.

    Geometric weights need pull request 2269. On main a product weight also sets GSPO's ratio. Weights on current / rollout
    also set force_on_policy_ratio.
    """
    if not correction.steps:
        return Settings()
    weigh, rest = correction.steps[0], correction.steps[1:]
    if not isinstance(weigh, Weigh):
        raise _no_setting("rejection without importance weights")
    settings = Settings(
        use_importance_sampling_correction=True,
        force_on_policy_ratio=correction.gap == "total",
        **_level(weigh.level),
        **(_sequence_mask(weigh, rest[0]) if rest else _bounds(weigh)),
    )
    if len(rest) > 1:
        raise _no_setting("more than one rejection")
    return replace(settings, version="pr2269") if settings.is_correction_level else settings


def _steps(settings: Settings) -> list[CorrectionStep]:
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


def _sequence_mask(weigh: Weigh, step: CorrectionStep) -> dict[str, Any]:
    if not isinstance(step, Reject) or (step.of, step.by) != ("weight", "mean"):
        raise _no_setting(f"rejection of {step.of} by {step.by}" if isinstance(step, Reject) else "normalised weights")
    if (weigh.level, weigh.low, weigh.high) != ("token", 0.0, inf):
        raise _no_setting("sequences rejected beside bounded weights")
    return _truncation("seq-mask-tis", max(step.low, 0.0), step.high)


def _truncation(kind: str, low: float | None, high: float) -> dict[str, Any]:
    name = "truncated_importance_sampling"
    return {f"{name}_type": kind, f"{name}_ratio": min(high, NO_BOUND), f"{name}_ratio_min": low}


def write(correction: Settings | Correction) -> str:
    """The correction as YAML sections without keys at their defaults. Comments above name its side effects."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    values = changed(settings)
    threshold = values.pop("seq_logprob_error_threshold", None)
    if settings.truncation or settings.level != "token":
        values["use_importance_sampling_correction"] = settings.use_importance_sampling_correction
    tree: dict[str, Any] = {"loss_fn": values} if values else {}
    if threshold is not None:
        tree["grpo"] = {"seq_logprob_error_threshold": threshold}
    return "".join(f"# {note}\n" for note in _side_effects(settings)) + yaml_text(tree)


def _side_effects(settings: Settings) -> list[str]:
    """A text for each other change that the settings make, or that they need."""
    rules = (
        (settings.is_correction_level is not None, "is_correction_level needs pull request 2269: main ignores it"),
        (
            settings.level == "sequence" and settings.is_correction_level is None,
            "there is one PPO ratio per sequence, too (GSPO)",
        ),
        (
            settings.force_on_policy_ratio,
            "needs one optimizer step per rollout batch: the PPO ratio is 1, and current takes the place of old",
        ),
    )
    return [note for holds, note in rules if holds]
