"""verl's settings as a Correction, and a Correction as verl's settings; ConfigError if verl has no such setting.

Every rejection of verl uses the mask before any rejection. verl bounds K1, the negative log-ratio, by the logs of a pair, so a
band [low, high] of the weight is the pair [1/high, 1/low].
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, CorrectionStep, Normalise, Reject, Weigh, WeightedGap
from ..settings import yaml_text
from .presets import GENERATIONS
from .ratio import SAFETY_BOUND
from .settings import Rejection, VerlSettings

LOWEST = sys.float_info.min
"""The bound that replaces 0, because verl rejects 0. Clamped weights and products of fewer than 36 of them are never below."""

Of = Literal["weight", "k1", "k2", "k3"]
By = Literal["token", "sum", "mean", "max", "any"]
_PER: Mapping[By, str] = {"token": "token", "sum": "seq_sum", "mean": "seq_mean", "max": "seq_max"}
_RATIO: Mapping[By, str] = {"token": "token", "sum": "sequence", "mean": "geometric"}


def correction_of(settings: VerlSettings) -> Correction:
    """The steps that verl takes: weights, their normalisation, then rejections.

    verl clamps divergences of single tokens to +-20. A Correction does not, so rows with such tokens may differ.
    """
    steps: list[CorrectionStep] = []
    if settings.is_level is not None:
        low = settings.is_lower or 0.0
        outside: Literal["clamp", "zero"] = "zero" if settings.is_lower else "clamp"
        steps.append(Weigh(settings.is_level, low, settings.is_upper, outside, SAFETY_BOUND))
        if settings.batch_normalize:
            steps.append(Normalise(settings.is_level))
    by_ratio = settings.generation.rejection == "ratio"
    steps += [_ratio_step(each) if by_ratio else _divergence_step(each) for each in settings.rejections]
    if settings.veto is not None:
        steps.append(Reject("weight", "any", low=settings.veto))
    gap: WeightedGap = "total" if settings.bypass else "mismatch"
    return Correction(f"verl {settings.version}", tuple(steps), gap)


def settings_for(correction: Correction, version: str = "0.9.1") -> VerlSettings:
    """verl's settings for a correction. A correction of gap `total` becomes bypass mode with the REINFORCE loss."""
    weighs = [step for step in correction.steps if isinstance(step, Weigh)]
    rejects = [step for step in correction.steps if isinstance(step, Reject)]
    normalises = [step for step in correction.steps if isinstance(step, Normalise)]
    _order(correction.steps)
    generation = GENERATIONS[version]
    veto = (
        [step for step in rejects if step.by == "any" and step.of == "weight"]
        if generation.rejection == "ratio"
        else []
    )
    kept = [step for step in rejects if step not in veto]
    if len(veto) > 1 or any(step.high != math.inf for step in veto):
        raise _no_setting("more than a lower bound of single tokens' weights", version)
    if generation.rejection == "ratio" and len(kept) > 1:
        raise _no_setting("more than one rejection", version)
    to_rejection = _ratio_rejection if generation.rejection == "ratio" else _divergence_rejection
    level, upper, lower = _importance(weighs, version)
    if normalises and (
        level is None or normalises[0].by != level or "rollout_is_batch_normalize" not in generation.defaults
    ):
        raise _no_setting("a normalisation at another level than the weights", version)
    return VerlSettings(
        version=version,
        is_level=level,
        is_upper=upper,
        is_lower=lower,
        batch_normalize=bool(normalises),
        rejections=tuple(to_rejection(step, version) for step in kept),
        veto=veto[0].low if veto else None,
        bypass=correction.gap == "total",
        loss_type="reinforce" if correction.gap == "total" else "ppo_clip",
    )


def _order(steps: Sequence[CorrectionStep]) -> None:
    """ConfigError unless weights come first, then their normalisation, then rejections, each over all sampled tokens."""
    kinds = [type(step) for step in steps]
    ordered = sorted(kinds, key=(Weigh, Normalise, Reject).index)
    later = [step for step in steps[1:] if not isinstance(step, Normalise) and step.over == "remaining"]
    if kinds != ordered or kinds.count(Normalise) > 1 or later:
        raise ConfigError(
            "verl weighs, then normalises, then rejects, each over all sampled tokens; this correction does not"
        )


def _importance(
    weighs: Sequence[Weigh], version: str
) -> tuple[Literal["token", "sequence"] | None, float, float | None]:
    if not weighs:
        return None, 2.0, None
    step = weighs[0]
    if step.level == "geometric":
        raise _no_setting("geometric importance weights", version)
    if step.outside == "clamp" and step.low > 0:
        raise _no_setting("a lower bound that weights are moved to", version)
    if step.outside == "clamp":
        return step.level, step.high, None
    if GENERATIONS[version].reports == "raw":
        raise _no_setting("weights set to zero outside a band", version)
    return step.level, step.high, max(step.low, LOWEST)


def _divergence_rejection(step: Reject, version: str) -> Rejection:
    if step.by == "any" or (step.by == "max" and step.of in ("weight", "k1")):
        raise _no_setting(f"rejection of whole sequences for one token's {step.of}", version)
    if step.of == "weight":
        return Rejection(f"{_PER[step.by]}_k1", max(1.0 / step.high, LOWEST), 1.0 / max(step.low, LOWEST))
    if step.of == "k1":
        return Rejection(f"{_PER[step.by]}_k1", max(math.exp(step.low), LOWEST), math.exp(step.high))
    if step.low > 0:
        raise _no_setting(f"a lower bound of {step.of}", version)
    return Rejection(f"{_PER[step.by]}_{step.of}", None, step.high)


def _ratio_rejection(step: Reject, version: str) -> Rejection:
    if step.of != "weight" or step.by not in _RATIO:
        raise _no_setting(f"rejection of {step.of} by {step.by}", version)
    return Rejection(_RATIO[step.by], max(step.low, 0.0), step.high)


def _divergence_step(rejection: Rejection) -> Reject:
    per, of = rejection.option.rsplit("_", 1)
    by: By = next(name for name, option in _PER.items() if option == per)
    if rejection.lower is not None:
        return Reject("weight", by, 1.0 / rejection.upper, 1.0 / rejection.lower)
    kind: Of = "k2" if of == "k2" else "k3"
    return Reject(kind, by, high=rejection.upper)


def _ratio_step(rejection: Rejection) -> Reject:
    by: By = next(name for name, option in _RATIO.items() if option == rejection.option)
    return Reject("weight", by, -math.inf if rejection.lower is None else rejection.lower, rejection.upper)


def _no_setting(feature: str, version: str) -> ConfigError:
    return ConfigError(f"verl {version} has no setting for {feature}; choose another correction or version")


def write(correction: VerlSettings | Correction, version: str = "0.9.1") -> str:
    """The correction as verl's YAML, with the flags that must be set beside the block.

    `version` matters only for a Correction. Strings are quoted, because YAML and Hydra read a bare 0.5_2 as the number 0.52.
    """
    settings = settings_for(correction, version) if isinstance(correction, Correction) else correction
    block = {key: f'"{value}"' if isinstance(value, str) else value for key, value in as_config(settings).items()}
    worker: dict[str, Any] = {"rollout": {"calculate_log_probs": True}}
    if settings.bypass and settings.generation.bypass_loss:
        worker["actor"] = {"policy_loss": {"loss_mode": "bypass_mode", "rollout_correction": block}}
    return yaml_text({"algorithm": {"rollout_correction": block}, "actor_rollout_ref": worker})


def as_config(settings: VerlSettings) -> dict[str, Any]:
    """verl's rollout_correction block with all keys of the generation; `parse` returns the settings from it."""
    return {key: value for key, value in _values(settings).items() if key in settings.generation.defaults}


def _values(settings: VerlSettings) -> Mapping[str, Any]:
    """The values of all keys of all generations."""
    cap = settings.is_upper if settings.is_lower is None else f"{settings.is_lower!r}_{settings.is_upper!r}"
    by_ratio = settings.generation.rejection == "ratio"
    thresholds = [_threshold(each, by_ratio) for each in settings.rejections]
    return {
        "rollout_is": settings.is_level,
        "rollout_is_threshold": cap,
        "rollout_is_batch_normalize": settings.batch_normalize,
        "rollout_rs": ",".join(each.option for each in settings.rejections) or None,
        "rollout_rs_threshold": thresholds[0] if len(thresholds) == 1 else ",".join(map(str, thresholds)) or None,
        "rollout_rs_threshold_lower": settings.rejections[0].lower if settings.rejections else None,
        "rollout_token_veto_threshold": settings.veto,
        "bypass_mode": settings.bypass,
        "loss_type": settings.loss_type,
        "bypass_old_logprob_for_rollout": settings.bypass,
        "use_pure_rollout_correction": settings.loss_type == "reinforce",
    }


def _threshold(rejection: Rejection, by_ratio: bool) -> float | str:
    pair = rejection.lower is not None and not by_ratio
    return f"{rejection.lower!r}_{rejection.upper!r}" if pair else rejection.upper
