"""The scale of a run's log-probs beside that of a server's prefill: temperature 1, before truncation and penalties."""

import math
from typing import TYPE_CHECKING

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.comparability import comparability

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

CUTS = ("top-p", "top-k", "min-p", "repetition penalty")
"""Settings of the comparison of both sides that a server does not apply to given tokens."""


def scale_doubts(run: "Run", *, refuse: bool = False) -> list[str]:
    """Why log-probs of the run may be of another scale than a server's: temperature and truncation.

    refuse: ConfigError where they certainly are, or where the mode that would tell is not on record.
    """
    own = {each.name: each for each in comparability(run.info)}
    temperature, mode = own["temperature"].rollout, own["log-prob mode"].rollout
    try:
        number = float(temperature)
    except ValueError:
        return ["the sampling temperature is not on record, and a server scores at temperature 1"]
    if number != 1 and not mode.startswith("raw"):
        if refuse:
            raise ConfigError(
                f"the run sampled at temperature {temperature}, and its log-prob mode is {mode.replace('_', ' ')}; a server"
                " scores given tokens at temperature 1 alone, so that the gap would be the temperature's. Read them with a model:"
                f" --model PATH --temperature {temperature}; or record the mode, if it is raw:"
                ' Collector(config={"logprobs_mode": "raw_logprobs"})'
            )
        return [f"the run sampled at temperature {temperature}, and a server scores at temperature 1"]
    if number != 1:
        return [
            f"the run sampled at temperature {temperature}: the engine's log-probs are raw, of temperature 1 as the server's are;"
            " a trainer that divides its logits by the temperature stands off by that"
        ]
    cuts = [f"{name} {own[name].rollout}" for name in CUTS if _acts(own[name].rollout)]
    if cuts and not mode.startswith("raw"):
        return [f"the run sampled with {', '.join(cuts)}, which a server does not apply to given tokens"]
    return []


def _acts(value: str) -> bool:
    """True for a number that is in effect."""
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
