"""slime's TIS hooks except MIS: one weight per token from one ratio, masks unchanged, no clamp before exp."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ratioscope.arrays import Array

from ..single_precision import exp
from .settings import Settings
from .tokens import Step, clamped_to


@dataclass(frozen=True)
class HookOutcome:
    """The results of a TIS hook for one step."""

    weights: Array | None
    """The factors of the clipped loss per token; None if the hook leaves the loss unchanged."""
    mask: Array
    """1.0 for tokens that stay in the loss, else 0.0."""
    metrics: Mapping[str, Array]
    """Metric name -> value per token."""


def vanilla_tis(step: Step, settings: Settings) -> HookOutcome:
    """clamp(old / rollout, tis_clip_low, tis_clip)."""
    ratio = exp(step.old - step.needed("rollout", "vanilla TIS"))
    return _outcome(step, ratio, clamped_to(ratio, settings.tis_clip_low, settings.tis_clip))


def icepop(step: Step, settings: Settings) -> HookOutcome:
    """old / rollout inside the bounds, else 0. Zeroed tokens stay in every denominator."""
    ratio = exp(step.old - step.needed("rollout", "icepop"))
    inside = (ratio >= np.float32(settings.tis_clip_low)) & (ratio <= np.float32(settings.tis_clip))
    return _outcome(step, ratio, np.where(inside, ratio, np.float32(0)))


def off_policy_is(step: Step, settings: Settings) -> HookOutcome:
    """clamp(current / rollout) without gradient: one weight for the whole gap between rollout and current."""
    ratio = exp(step.needed("current", "off-policy IS") - step.needed("rollout", "off-policy IS"))
    return _outcome(step, ratio, clamped_to(ratio, *settings.off_policy_clip))


def _outcome(step: Step, ratio: Array, weights: Array) -> HookOutcome:
    metrics = {"tis": ratio, "tis_abs": np.abs(ratio - np.float32(1)), "tis_clipfrac": weights != ratio}
    return HookOutcome(weights, step.mask, metrics)
