"""The cookbook's settings as a Correction, and a Correction as its settings; ConfigError if it has no such setting.

The cookbook limits each token's log-ratio to 20 before it takes a sequence's mean. A Correction limits the mean.
"""

from functools import partial
from math import inf, isclose
from typing import Any

from ...corrections.correction import Correction, CorrectionStep, Reject, Weigh
from ...distribution import Level
from ..settings import changed, no_setting
from .loss import SAFETY_CLAMP
from .settings import Settings

_no_setting = partial(no_setting, "fireworks")
NO_BOUND = 1e9
"""A cap that no weight reaches: exp(20) is 4.9e8."""


def correction_of(settings: Settings) -> Correction:
    """The steps that the cookbook takes in the loss of the settings."""
    if settings.loss == "reinforce":
        return Correction("fireworks reinforce", (Weigh(log_limit=SAFETY_CLAMP),), "total")
    if settings.anchor_logp == "rollout":
        return Correction("fireworks", ())
    if settings.loss == "igpo":
        return Correction("fireworks igpo", (Weigh(log_limit=SAFETY_CLAMP),))
    level: Level = "token" if settings.level == "token" else "geometric"
    steps: list[CorrectionStep] = [Weigh(level, high=settings.cap, log_limit=SAFETY_CLAMP)]
    if settings.icepop_threshold is not None:
        steps.append(Reject("weight", "token", 1 / settings.icepop_threshold, settings.icepop_threshold))
    return Correction("fireworks", tuple(steps))


def settings_for(correction: Correction) -> Settings:
    """The cookbook's settings for a correction. They cannot switch the weight off, but the rollout anchor makes it 1."""
    if correction.gap == "total" and correction.steps:
        raise _no_setting("weights on current / rollout")
    if not correction.steps:
        return Settings(anchor_logp="rollout")
    weigh, rest = correction.steps[0], correction.steps[1:]
    if not isinstance(weigh, Weigh):
        raise _no_setting("rejection without importance weights")
    if weigh.level == "sequence":
        raise _no_setting("the product of a sequence's ratios; its level 'sequence' is their geometric mean")
    if len(rest) > 1:
        raise _no_setting("more than one rejection")
    return Settings(
        level="token" if weigh.level == "token" else "sequence",
        cap=min(weigh.high, NO_BOUND),
        **(_icepop(weigh, rest[0]) if rest else _band(weigh)),
    )


def _band(weigh: Weigh) -> dict[str, Any]:
    if weigh.outside == "zero":
        return _threshold(weigh.level, weigh.low, weigh.high)
    if weigh.low > 0:
        raise _no_setting("a lower bound that weights are moved to")
    return {}


def _icepop(weigh: Weigh, step: CorrectionStep) -> dict[str, Any]:
    if not isinstance(step, Reject) or (step.of, step.by) != ("weight", "token") or weigh.outside == "zero":
        raise _no_setting(f"rejection of {step.of} by {step.by}" if isinstance(step, Reject) else "normalised weights")
    return _band(weigh) | _threshold(weigh.level, step.low, step.high)


def _threshold(level: str, low: float, high: float) -> dict[str, Any]:
    if level != "token":
        raise _no_setting("whole sequences set to zero")
    if not 0 < low < inf or not isclose(low * high, 1.0, rel_tol=1e-9):
        raise _no_setting(f"a band [{low:g}, {high:g}] that is not [1/T, T]")
    return {"icepop_threshold": high}


def write(correction: Settings | Correction) -> str:
    """The correction as a recipe's Config with its TISConfig."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    tis = changed(settings, ("cap", "level", "icepop_threshold"))
    rest = changed(settings, ("anchor_logp", "eps_clip", "eps_clip_high"))
    within = ", ".join(f"{name}={value!r}" for name, value in tis.items())
    arguments = [f"    tis=TISConfig({within}),"]
    arguments += [f"    {name}={value!r}," for name, value in rest.items()]
    if settings.anchor_logp == "rollout":
        arguments.append("    # the PPO ratio is then current / rollout, the TIS weight is 1, and no old forward runs")
    return "\n".join(["Config(", *arguments, ")", ""])
