"""TRL's settings as a Correction, and a Correction as TRL's settings; ConfigError if TRL has no such setting."""

from functools import partial
from math import inf
from typing import Literal

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, Weigh
from ...distribution import Level
from ..settings import changed, no_setting
from .settings import Settings

_no_setting = partial(no_setting, "trl")


def correction_of(settings: Settings) -> Correction:
    """The step that TRL takes. ConfigError for the off-policy mask, because it reads advantages."""
    if settings.off_policy_mask_threshold is not None:
        raise ConfigError("off_policy_mask_threshold reads advantages; no correction does: evaluate trl's dialect")
    if not settings.corrected:
        return Correction("trl", ())
    low, high = settings.bounds
    level: Level = "sequence" if settings.per_sequence else "token"
    outside: Literal["clamp", "zero"] = (
        "clamp" if settings.vllm_importance_sampling_mode.endswith("truncate") else "zero"
    )
    return Correction(f"trl {settings.vllm_importance_sampling_mode}", (Weigh(level, max(low, 0.0), high, outside),))


def settings_for(correction: Correction) -> Settings:
    """TRL's settings for a correction: one weight, per token or the product over a sequence."""
    if not correction.steps:
        return Settings(use_vllm=True, vllm_importance_sampling_correction=False)
    weigh = correction.steps[0]
    if correction.gap == "total":
        raise _no_setting("weights on current / rollout")
    if not isinstance(weigh, Weigh) or len(correction.steps) > 1:
        raise _no_setting("rejection: a weight of 0 is its only mask")
    if weigh.level == "geometric":
        raise _no_setting("geometric importance weights")
    # A mask mode without bounds masks nothing; a truncate mode requires a bound.
    masks = weigh.outside == "zero" or (weigh.low, weigh.high) == (0.0, inf)
    return Settings(
        use_vllm=True,
        vllm_importance_sampling_mode=f"{weigh.level}_{'mask' if masks else 'truncate'}",
        vllm_importance_sampling_clip_max=None if weigh.high == inf else weigh.high,
        vllm_importance_sampling_clip_min=weigh.low or None,
    )


def write(correction: Settings | Correction) -> str:
    """The correction as a GRPOConfig call. It includes use_vllm, because it does nothing without."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    values = {"use_vllm": settings.use_vllm is not False, **changed(settings)}
    if settings.corrected:
        values["vllm_importance_sampling_mode"] = settings.vllm_importance_sampling_mode
        values["vllm_importance_sampling_clip_max"] = settings.vllm_importance_sampling_clip_max
    return "\n".join(["GRPOConfig(", *(f"    {name}={value!r}," for name, value in values.items()), ")", ""])
