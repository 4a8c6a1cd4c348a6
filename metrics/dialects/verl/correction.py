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
from ..settings import no_setting, yaml_text
from .settings import VERSIONS, Rejection, VerlSettings
from .weights import SAFETY_BOUND

LOWEST = sys.float_info.min
"""The bound that replaces 0, because verl rejects 0. Clamped weights and products of fewer than 36 of them are never below."""

By = Literal["token", "sum", "mean", "max", "any"]
_PER: Mapping[By, str] = {"token": "token", "sum": "seq_sum", "mean": "seq_mean", "max": "seq_max"}


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
    for rejection in settings.rejections:
        per, of = rejection.option.rsplit("_", 1)
        by: By = next(name for name, option in _PER.items() if option == per)
        if rejection.lower is not None:
            steps.append(Reject("weight", by, 1.0 / rejection.upper, 1.0 / rejection.lower))
        else:
            steps.append(Reject("k2" if of == "k2" else "k3", by, high=rejection.upper))
    gap: WeightedGap = "total" if settings.bypass else "mismatch"
    return Correction(f"verl {settings.version}", tuple(steps), gap)


def settings_for(correction: Correction, version: str = "0.9.1") -> VerlSettings:
    """verl's settings for a correction. A correction of gap `total` becomes bypass mode with the REINFORCE loss."""
    weighs = [step for step in correction.steps if isinstance(step, Weigh)]
    rejects = [step for step in correction.steps if isinstance(step, Reject)]
    normalises = [step for step in correction.steps if isinstance(step, Normalise)]
    kinds = [type(step) for step in correction.steps]
    later = [step for step in correction.steps[1:] if not isinstance(step, Normalise) and step.over == "remaining"]
    if kinds != sorted(kinds, key=(Weigh, Normalise, Reject).index) or len(normalises) > 1 or later:
        raise ConfigError(
            "verl weighs, then normalises, then rejects, each over all sampled tokens; this correction does not"
        )
    level, upper, lower = _importance(weighs, version)
    if normalises and (level is None or normalises[0].by != level):
        raise _no_setting("a normalisation at another level than the weights", version)
    return VerlSettings(
        version=version,
        is_level=level,
        is_upper=upper,
        is_lower=lower,
        batch_normalize=bool(normalises),
        rejections=tuple(_divergence_rejection(step, version) for step in rejects),
        bypass=correction.gap == "total",
        loss_type="reinforce" if correction.gap == "total" else "ppo_clip",
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
    if version != VERSIONS[0]:
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


def _no_setting(feature: str, version: str) -> ConfigError:
    return no_setting(f"verl {version}", feature, "another correction or version")


def write(correction: VerlSettings | Correction, version: str = "0.9.1") -> str:
    """The correction as verl's YAML, with the flags that must be set beside the block.

    `version` matters only for a Correction. Strings are quoted, because YAML and Hydra read a bare 0.5_2 as the number 0.52.
    """
    settings = settings_for(correction, version) if isinstance(correction, Correction) else correction
    block = {key: f'"{value}"' if isinstance(value, str) else value for key, value in as_config(settings).items()}
    worker: dict[str, Any] = {"rollout": {"calculate_log_probs": True}}
    if settings.bypass:
        worker["actor"] = {"policy_loss": {"loss_mode": "bypass_mode", "rollout_correction": block}}
    return yaml_text({"algorithm": {"rollout_correction": block}, "actor_rollout_ref": worker})


def as_config(settings: VerlSettings) -> dict[str, Any]:
    """verl's rollout_correction block with all its keys; `parse` returns the settings from it."""
    cap = settings.is_upper if settings.is_lower is None else f"{settings.is_lower!r}_{settings.is_upper!r}"
    thresholds = [
        each.upper if each.lower is None else f"{each.lower!r}_{each.upper!r}" for each in settings.rejections
    ]
    return {
        "rollout_is": settings.is_level,
        "rollout_is_threshold": cap,
        "rollout_is_batch_normalize": settings.batch_normalize,
        "rollout_rs": ",".join(each.option for each in settings.rejections) or None,
        "rollout_rs_threshold": thresholds[0] if len(thresholds) == 1 else ",".join(map(str, thresholds)) or None,
        "bypass_mode": settings.bypass,
        "loss_type": settings.loss_type,
    }
