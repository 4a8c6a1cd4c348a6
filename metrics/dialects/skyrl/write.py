"""SkyRL's settings printed back as the dot overrides SkyRL reads."""

from ...corrections.correction import Correction
from ..settings import changed, yaml_scalar
from .correction import settings_for
from .settings import ALGORITHM, BLOCKS, Settings


def write(correction: Settings | Correction) -> str:
    """SkyRL's dot overrides for these settings, one a line, with what must be set beside them."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    places = {name: f"{block}.{name}" for block, names in BLOCKS.items() for name in names}
    names = (*ALGORITHM, *places)
    lines = [
        f"trainer.algorithm.{places.get(name, name)}={yaml_scalar(value)}"
        for name, value in changed(settings, names).items()
    ]
    if settings.corrects or settings.anchors_on_rollout:
        lines.append("generator.sampling_params.logprobs=1")
    return "\n".join(lines)
