"""SkyRL's settings as a Correction, and a Correction as its settings; ConfigError if SkyRL has no such setting.

SkyRL's order is fixed: outliers, single tokens, weights, sequences. The order matters only with a token mask, because the
products and means of sequences then run over the tokens that the mask leaves.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal

from ratioscope.errors import ConfigError

from ...corrections.correction import Correction, CorrectionStep, Reject, Weigh
from ..settings import changed, no_setting, yaml_scalar
from .settings import ALGORITHM, BLOCKS, WITHOUT_CORRECTION, Settings

LOG_LIMIT = 20.0
_no_setting = partial(no_setting, "SkyRL")
NO_BOUND = 1e9
"""An upper bound that no weight reaches: SkyRL clamps log-ratios to 20, and exp(20) is 4.9e8."""
SEQUENCE_MASKS: Mapping[str, tuple[Literal["sum", "mean"], str]] = {
    "product": ("sum", "product_mask"),
    "geometric": ("mean", "geo_mask"),
}
"""sequence_mask_metric -> (`by` of the Reject, first part of the names of its bounds)."""


def correction_of(settings: Settings) -> Correction:
    """The steps that SkyRL takes. ConfigError for DPPO, which reads advantages, and for corrections of two gaps at once."""
    if settings.anchors_on_rollout:
        if settings.corrects or settings.policy_loss_type == "dppo":
            what = "off_policy_correction beside it" if settings.corrects else "the advantages"
            raise ConfigError(f"policy_loss_type {settings.policy_loss_type!r} reads {what}: no single correction does")
        if settings.policy_loss_type == "cispo":
            low, high = settings.cispo_eps_clip_low, settings.cispo_eps_clip_high
            return Correction(
                "skyrl cispo", (Weigh("token", max(1 - low, 0.0), 1 + high, log_limit=LOG_LIMIT),), "total"
            )
        bounds = max(1 - settings.eps_clip_low, 0.0), 1 + settings.eps_clip_high
        return Correction("skyrl rollout_is", (Weigh("token", *bounds, "zero", LOG_LIMIT),), "total")
    steps = () if settings.policy_loss_type in WITHOUT_CORRECTION else tuple(_steps(settings))
    return Correction("skyrl off_policy_correction", steps)


def settings_for(correction: Correction) -> Settings:
    """SkyRL's settings for a correction. A correction of gap `total` becomes a loss anchored on the rollout policy."""
    if correction.gap == "total":
        return _anchored_settings(correction.steps)
    keys: dict[str, Any] = {}
    for step in correction.steps:
        step_keys = _keys(step)
        if set(step_keys) & set(keys):
            raise _no_setting(f"more than one step that sets {sorted(set(step_keys) & set(keys))[0]}")
        keys |= step_keys
    _check_order(correction.steps)
    return Settings(**keys)


def _steps(settings: Settings) -> list[CorrectionStep]:
    steps: list[CorrectionStep] = []
    if settings.masks_outliers:
        low, high = settings.outlier_token_is_threshold_low, settings.outlier_token_is_threshold_high
        steps.append(Reject("weight", "any", -math.inf if low is None else low, math.inf if high is None else high))
    low, high = settings.token_mask_is_threshold_low, settings.token_mask_is_threshold_high
    if low is not None and high is not None:
        steps.append(Reject("weight", "token", low, high, "remaining"))
    if settings.tis_ratio_type == "token":
        steps.append(Weigh("token", high=settings.token_tis_ratio_clip_high, log_limit=LOG_LIMIT))
    if settings.tis_ratio_type == "sequence":
        cap = settings.sequence_tis_ratio_clip_high
        steps.append(Weigh("sequence", high=cap, log_limit=LOG_LIMIT, over="remaining"))
    if settings.sequence_mask_metric is not None:
        by, name = SEQUENCE_MASKS[settings.sequence_mask_metric]
        low, high = getattr(settings, f"{name}_low"), getattr(settings, f"{name}_high")
        steps.append(Reject("weight", by, low, high, "remaining"))
    return steps


def _anchored_settings(steps: Sequence[CorrectionStep]) -> Settings:
    step = steps[0] if len(steps) == 1 else None
    if not isinstance(step, Weigh) or step.level != "token":
        raise _no_setting("anything on current / rollout but one bounded weight per token")
    low, high = 1 - step.low, min(step.high, NO_BOUND) - 1
    if step.outside == "zero":
        return Settings(policy_loss_type="rollout_is", eps_clip_low=low, eps_clip_high=high)
    return Settings(policy_loss_type="cispo", cispo_anchor="rollout", cispo_eps_clip_low=low, cispo_eps_clip_high=high)


def _keys(step: CorrectionStep) -> dict[str, Any]:
    """The settings of one step, whatever its place among the steps."""
    if isinstance(step, Weigh):
        # The settings of TIS. A weight that is 0 outside a band becomes TIS beside a mask of these tokens or sequences.
        if step.level == "geometric":
            raise _no_setting("geometric importance weights")
        if step.outside == "clamp" and step.low > 0:
            raise _no_setting("a lower bound that weights are moved to")
        cap = min(step.high, NO_BOUND)
        keys: dict[str, Any] = {"tis_ratio_type": step.level, f"{step.level}_tis_ratio_clip_high": cap}
        if step.outside == "clamp":
            return keys
        if step.level == "token":
            return keys | {"token_mask_is_threshold_low": step.low, "token_mask_is_threshold_high": cap}
        return keys | _sequence_mask_keys("product", step.low, cap)
    if not isinstance(step, Reject) or step.of not in ("weight", "k1") or step.by == "max":
        raise _no_setting(f"rejection of {step.of} by {step.by}" if isinstance(step, Reject) else "normalised weights")
    low, high = (step.low, step.high) if step.of == "weight" else (math.exp(-step.high), math.exp(-step.low))
    if step.by == "any":
        bounds = {"outlier_token_is_threshold_low": low, "outlier_token_is_threshold_high": high}
        return {name: None if math.isinf(bound) else bound for name, bound in bounds.items()}
    low, high = max(low, 0.0), min(high, NO_BOUND)
    if step.by == "token":
        return {"token_mask_is_threshold_low": low, "token_mask_is_threshold_high": high}
    metric = next(metric for metric, (by, _) in SEQUENCE_MASKS.items() if by == step.by)
    return _sequence_mask_keys(metric, low, high)


def _sequence_mask_keys(metric: str, low: float, high: float) -> dict[str, Any]:
    name = SEQUENCE_MASKS[metric][1]
    return {"sequence_mask_metric": metric, f"{name}_low": low, f"{name}_high": high}


def _check_order(steps: Sequence[CorrectionStep]) -> None:
    """ConfigError unless outliers come before a token mask, and whole sequences after it, over the tokens that it leaves."""
    masks = [i for i, step in enumerate(steps) if isinstance(step, Reject) and step.by == "token"]
    for i, step in enumerate(steps if masks else ()):
        outlier = isinstance(step, Reject) and step.by == "any"
        whole = (isinstance(step, Weigh) and step.level == "sequence") or (
            isinstance(step, Reject) and step.by in ("sum", "mean")
        )
        after = i > masks[0] and getattr(step, "over", "") == "remaining"
        if (outlier and after) or (whole and not after):
            raise _no_setting("this order: it masks outliers, then tokens, then weighs or masks sequences by the rest")


def write(correction: Settings | Correction) -> str:
    """SkyRL's dot overrides, one a line, with the other settings that must be set beside them."""
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
