"""The Fireworks cookbook's settings printed back as the Python of its recipes."""

from collections.abc import Mapping
from typing import Any

from ...corrections.correction import Correction
from ..settings import changed
from .correction import settings_for
from .settings import Settings


def write(correction: Settings | Correction) -> str:
    """The correction as a recipe's Config with its TISConfig, or as pull request 169's ISConfig."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    tis = changed(settings, ("cap", "level", "icepop_threshold"))
    rest = changed(settings, ("anchor_logp", "eps_clip", "eps_clip_high"))
    if settings.version == "pr169":
        names = {"cap": "tis_cap", "level": "tis_level"}
        clips = {name: value for name, value in rest.items() if name != "anchor_logp"}
        return f"ISConfig({_arguments({names[name]: value for name, value in tis.items()} | clips)})\n"
    arguments = [f"    tis=TISConfig({_arguments(tis)}),"]
    arguments += [f"    {name}={value!r}," for name, value in rest.items()]
    if settings.anchor_logp == "rollout":
        arguments.append("    # the PPO ratio is then current / rollout, the TIS weight 1, and no old forward is run")
    return "\n".join(["Config(", *arguments, ")", ""])


def _arguments(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r}" for name, value in values.items())
