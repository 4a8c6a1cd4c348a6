"""The tables of all formats, one file for each trainer or engine. `ratioscope import --from NAME` names one."""

from ..table import Format
from . import (
    agent_lightning,
    areal,
    engines,
    harnesses,
    martingale,
    miles,
    nemo_rl,
    open_instruct,
    prime_rl,
    skyrl,
    slime,
    tinker,
    trl,
    verifiers,
    verl,
)

FORMATS: tuple[Format, ...] = (
    *nemo_rl.FORMATS, *miles.FORMATS, *slime.FORMATS, *skyrl.FORMATS, *verifiers.FORMATS, *verl.FORMATS, *prime_rl.FORMATS,
    *open_instruct.FORMATS,
    *tinker.FORMATS, *trl.FORMATS, *areal.FORMATS, *engines.FORMATS, *harnesses.FORMATS,
    *martingale.FORMATS, *agent_lightning.FORMATS,
)  # fmt: skip
"""In the order in which a file is tried: the first that fits counts."""
BY_NAME = {known.name: known for known in FORMATS}
