"""The scale of a run's log-probs beside that of a server's prefill, which is before truncation and penalties."""

import math
from typing import TYPE_CHECKING

import numpy as np

from ratioscope.errors import ConfigError
from ratioscope.ingest.analysis.comparability import comparability

from .likeliest import LIKELIEST

if TYPE_CHECKING:
    from ratioscope.ingest.run import Run

    from .engines import Engine

CUTS = ("top-p", "top-k", "min-p", "repetition penalty")
"""Settings of the comparison of both sides that a server does not apply to given tokens."""


def temperature_of(run: "Run") -> float:
    """The temperature of the engine's log-probs, as far as it is on record: 1 for raw ones, and for a greedy sampler.

    ConfigError where the run sampled at another one, and the mode that would show which log-probs it kept is not on record.
    """
    number, mode, _ = _recorded(run)
    if number is None or number == 1 or number <= 0 or mode.startswith("raw"):
        return 1.0
    if mode.startswith("processed"):
        return number
    raise ConfigError(
        f"the run sampled at temperature {number:g}, and its log-prob mode is {mode}: nothing shows the temperature of its"
        f" log-probs. Name it: --temperature {number:g} if the logits were divided by it (SGLang, or vLLM with --logprobs-mode"
        ' processed_logprobs), --temperature 1 if not; or record it: Collector(config={"logprobs_mode": "raw_logprobs"})'
    )


def scale_doubts(run: "Run", read_at: float = 1.0) -> list[str]:
    """Why log-probs of the run may be of another scale than a server's: temperature and truncation.

    read_at: the temperature of the server's log-probs.
    """
    number, mode, cuts = _recorded(run)
    if number is None:
        return [f"the sampling temperature is not on record, and the server's log-probs are of temperature {read_at:g}"]
    if number != 1 and mode.startswith("raw") and read_at == 1:
        return [
            f"the run sampled at temperature {number:g}: the engine's log-probs are raw, of temperature 1 as the server's are;"
            " a trainer that divides its logits by the temperature stands off by that"
        ]
    if read_at != number or mode.startswith("raw") and number != 1:
        return [f"the run sampled at temperature {number:g}, and the server's log-probs are of temperature {read_at:g}"]
    if cuts and not mode.startswith("raw"):
        return [f"the run sampled with {', '.join(cuts)}, which a server does not apply to given tokens"]
    return []


def bound_doubts(engine: "Engine") -> list[str]:
    """The error of the log-probs that the engine gave at another temperature than 1, in words."""
    if not engine.unsure:
        return []
    off = np.concatenate(engine.unsure)
    return [
        f"a server gives the {LIKELIEST} likeliest tokens of each place alone: its log-probs at temperature"
        f" {engine.temperature:g} are known to ± {off.mean():.1g} nats/token on average, ± {off.max():.1g} at most"
    ]


def _recorded(run: "Run") -> tuple[float | None, str, list[str]]:
    """The engine's temperature (None if it is not on record), its log-prob mode in words, and what cuts its distribution."""
    own = {each.name: each.rollout for each in comparability(run.info)}
    number = float(own["temperature"]) if _acts(own["temperature"]) else None
    cuts = [f"{name} {own[name]}" for name in CUTS if _acts(own[name])]
    return number, own["log-prob mode"].replace("_", " "), cuts


def _acts(value: str) -> bool:
    """True for a number that is in effect."""
    try:
        return math.isfinite(float(value))
    except ValueError:
        return False
