"""AReaL's settings as a Correction, and a Correction as AReaL's settings; ConfigError if AReaL has no such setting.

AReaL's kl_k1 is our -K1. Its kl_k3 takes the inverse ratio, which no Correction does.
"""

from functools import partial
from math import inf, log
from typing import Any, Literal

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, CorrectionStep, Reject, Weigh
from ...distribution import Level
from ..settings import changed, no_setting, yaml_text
from .settings import GENERATIONS, Rejection, Settings

_BY: dict[str, Literal["token", "sum", "mean", "max"]] = {"sum": "sum", "mean": "mean", "max": "max"}
_no_setting = partial(no_setting, "areal")
_SWITCHES = {name for generation in GENERATIONS.values() for name in generation.switch}
NO_BOUND = 1e30
"""An upper bound that no weight reaches, because AReaL requires one. AReaL limits no log-ratio."""


def correction_of(settings: Settings) -> Correction:
    """The steps that AReaL takes. ConfigError for M2PO, which reads the whole batch, and for rejections that no Step does."""
    if settings.m2_threshold is not None:
        raise ConfigError("m2_threshold drops tokens until a mean is small; no correction does: evaluate the dialect")
    name = f"areal {settings.version}"
    if not settings.weighted or not settings.decoupled:
        return Correction(name, ())
    if settings.rejection is not None:
        return Correction(name, tuple(_steps(settings.rejection)))
    level: Level = "geometric" if "sequence" in settings.behave_imp_weight_mode else "token"
    outside: Literal["clamp", "zero"] = "clamp" if "truncate" in settings.behave_imp_weight_mode else "zero"
    cap = settings.behave_imp_weight_cap
    return Correction(name, (Weigh(level, high=inf if cap is None else cap, outside=outside),))


def settings_for(correction: Correction) -> Settings:
    """AReaL 1.0.4's settings for a correction."""
    if not correction.steps:
        return Settings(use_decoupled_loss=True)
    weigh, rest = correction.steps[0], correction.steps[1:]
    if correction.gap == "total":
        raise _no_setting("weights on current / rollout")
    if not isinstance(weigh, Weigh):
        raise _no_setting("rejection without importance weights")
    if weigh.level == "sequence":
        raise _no_setting("the product of a sequence's ratios; its sequence weight is their geometric mean")
    if len(rest) > 1:
        raise _no_setting("more than one rejection")
    rejection = Rejection(**(_rejecting(weigh, rest[0]) if rest else _bounded(weigh)))
    return Settings(use_decoupled_loss=True, rejection=rejection)


def _steps(r: Rejection) -> list[CorrectionStep]:
    low = -inf if r.lower is None else r.lower
    level: Level = "geometric" if r.level == "sequence" and r.metric == "ratio" else "token"
    if r.action == "clamp":
        if r.level == "sequence" and r.agg != "mean":
            raise ConfigError(f"no correction clamps by the {r.agg} of a sequence: evaluate the dialect")
        return [Weigh(level, max(low, 0.0), r.upper)]
    by = "token" if r.level == "token" else _BY[r.agg]
    if r.metric == "ratio":
        return [Weigh(level), Reject("weight", by, low, r.upper)]
    if r.metric == "kl_k1" and by != "max":
        return [Weigh(level), Reject("k1", by, -r.upper, -low)]
    if r.metric == "kl_k2":
        return [Weigh(level), Reject("k2", by, low, r.upper)]
    raise ConfigError(f"no correction rejects {r.metric} by {by}: evaluate the dialect")


def _bounded(weigh: Weigh) -> dict[str, Any]:
    action = "mask" if weigh.outside == "zero" or weigh.high == inf else "clamp"
    if action == "mask" and weigh.outside == "clamp" and weigh.low > 0:
        raise _no_setting("a lower bound that weights are moved to, without an upper one")
    level = "token" if weigh.level == "token" else "sequence"
    return {"level": level, "action": action, **_ratio_bounds(weigh.low, weigh.high)}


def _rejecting(weigh: Weigh, step: CorrectionStep) -> dict[str, Any]:
    if not isinstance(step, Reject):
        raise _no_setting("normalised weights")
    if (weigh.low, weigh.high) != (0.0, inf):
        raise _no_setting("rejection beside bounded weights")
    if weigh.level == "token" and step.of == "weight" and step.by in ("sum", "mean"):
        step = Reject("k1", step.by, -_logarithm(step.high), -_logarithm(step.low))
    if step.by == "any" or step.of == "k3" or (step.of, step.by) == ("k1", "max"):
        raise _no_setting(f"rejection of {step.of} by {step.by}")
    by = {"level": "token"} if step.by == "token" else {"level": "sequence", "agg": step.by}
    if (weigh.level == "geometric") != (by["level"] == "sequence" and step.of == "weight"):
        raise _no_setting(f"{weigh.level} weights beside rejection of {step.of} by {step.by}")
    if step.of == "weight":
        return {**by, **_ratio_bounds(step.low, step.high)}
    low, high = (step.low, step.high) if step.of == "k2" else (-step.high, -step.low)
    return {**by, "metric": f"kl_{step.of}", "upper": min(high, NO_BOUND), "lower": None if low == -inf else low}


def _logarithm(bound: float) -> float:
    """The bound of a weight as a bound of kl_k1, the metric with which AReaL keeps one weight per token."""
    return -inf if bound <= 0 else inf if bound == inf else log(bound)


def _ratio_bounds(low: float, high: float) -> dict[str, Any]:
    if high <= 1:
        raise _no_setting(f"an upper bound of {high:g}: it has to be above 1")
    return {"upper": min(high, NO_BOUND), "lower": low if low > 0 else None}


def write(correction: Settings | Correction) -> str:
    """The correction as YAML under `actor`. It includes use_decoupled_loss, because it does nothing without."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    switch = settings.generation.switch
    others = {name: value for name, value in changed(settings).items() if name not in _SWITCHES}
    tree: dict[str, Any] = others | {"use_decoupled_loss": settings.decoupled}
    for name in switch:
        tree[name] = _block(settings.rejection) if name == "rejection_sampling" else getattr(settings, name)
    return yaml_text({"actor": tree})


def _block(rejection: Rejection | None) -> dict[str, Any] | None:
    """The main keys are always written, so that a reader need not know their defaults."""
    if rejection is None:
        return None
    return {name: getattr(rejection, name) for name in ("level", "action", "metric", "upper")} | changed(rejection)
