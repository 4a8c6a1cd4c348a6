"""TRL's settings printed back as the call TRL reads."""

from ...corrections.correction import Correction
from ..settings import changed
from .correction import settings_for
from .settings import Settings


def write(correction: Settings | Correction) -> str:
    """The correction as a GRPOConfig call, with use_vllm, without which it does nothing."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    values = {"use_vllm": settings.use_vllm is not False, **changed(settings)}
    if settings.corrected:
        values["vllm_importance_sampling_mode"] = settings.vllm_importance_sampling_mode
        values["vllm_importance_sampling_clip_max"] = settings.vllm_importance_sampling_clip_max
    return "\n".join(["GRPOConfig(", *(f"    {name}={value!r}," for name, value in values.items()), ")", ""])
