"""AReaL's settings printed back as the configuration AReaL reads."""

from typing import Any

from ...corrections.correction import Correction
from ..settings import changed, yaml_text
from .correction import settings_for
from .settings import GENERATIONS, Rejection, Settings

_SWITCHES = {name for generation in GENERATIONS.values() for name in generation.switch}


def write(correction: Settings | Correction) -> str:
    """The correction as YAML under `actor`, with use_decoupled_loss, without which it does nothing."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    switch = settings.generation.switch
    others = {name: value for name, value in changed(settings).items() if name not in _SWITCHES}
    tree: dict[str, Any] = others | {"use_decoupled_loss": settings.decoupled}
    for name in switch:
        tree[name] = _block(settings.rejection) if name == "rejection_sampling" else getattr(settings, name)
    return yaml_text({"actor": tree})


def _block(rejection: Rejection | None) -> dict[str, Any] | None:
    """Spelled out, so that it can be read without knowing its defaults."""
    if rejection is None:
        return None
    return {name: getattr(rejection, name) for name in ("level", "action", "metric", "upper")} | changed(rejection)
