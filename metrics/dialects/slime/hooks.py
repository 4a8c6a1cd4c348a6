"""slime's TIS hooks but for MIS: one weight per token from one ratio, masks unchanged, no clamp before exp."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..evaluation import Array
from ..single_precision import exp
from .settings import Settings
from .tokens import Step, clamped_to


@dataclass(frozen=True)
class HookOutcome:
    """`weights` multiply the clipped loss (None: the hook leaves it); `mask` aggregates it; `metrics` are per token."""

    weights: Array | None
    mask: Array
    metrics: Mapping[str, Array]


def vanilla_tis(step: Step, settings: Settings) -> HookOutcome:
    """clamp(old / rollout, tis_clip_low, tis_clip)."""
    ratio = exp(step.old - step.needed("rollout", "vanilla TIS"))
    return _outcome(step, ratio, clamped_to(ratio, settings.tis_clip_low, settings.tis_clip))


def icepop(step: Step, settings: Settings) -> HookOutcome:
    """old / rollout between the bounds, 0 beyond; zeroed tokens stay in every denominator."""
    ratio = exp(step.old - step.needed("rollout", "icepop"))
    inside = (ratio >= np.float32(settings.tis_clip_low)) & (ratio <= np.float32(settings.tis_clip))
    return _outcome(step, ratio, np.where(inside, ratio, np.float32(0)))


def off_policy_is(step: Step, settings: Settings) -> HookOutcome:
    """clamp(current / rollout), detached: one weight for the whole gap between sampler and gradient."""
    ratio = exp(step.needed("current", "off-policy IS") - step.needed("rollout", "off-policy IS"))
    return _outcome(step, ratio, clamped_to(ratio, *settings.off_policy_clip))


def _outcome(step: Step, ratio: Array, weights: Array) -> HookOutcome:
    metrics = {"tis": ratio, "tis_abs": np.abs(ratio - np.float32(1)), "tis_clipfrac": weights != ratio}
    return HookOutcome(weights, step.mask, metrics)
