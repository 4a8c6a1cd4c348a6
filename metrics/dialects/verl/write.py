"""verl's settings printed back as the configuration verl reads."""

from collections.abc import Mapping
from typing import Any

from ...corrections.correction import Correction
from ..settings import yaml_text
from .correction import settings_for
from .settings import Rejection, VerlSettings


def write(correction: VerlSettings | Correction, version: str = "0.9.1") -> str:
    """The correction as verl's YAML, with the flags that must be set beside the block; `version` is read for a Correction.

    Strings are quoted: YAML and Hydra read a bare 0.5_2 as the number 0.52.
    """
    settings = settings_for(correction, version) if isinstance(correction, Correction) else correction
    block = {key: f'"{value}"' if isinstance(value, str) else value for key, value in as_config(settings).items()}
    worker: dict[str, Any] = {"rollout": {"calculate_log_probs": True}}
    if settings.bypass and settings.generation.bypass_loss:
        worker["actor"] = {"policy_loss": {"loss_mode": "bypass_mode", "rollout_correction": block}}
    return yaml_text({"algorithm": {"rollout_correction": block}, "actor_rollout_ref": worker})


def as_config(settings: VerlSettings) -> dict[str, Any]:
    """The block verl reads, with all keys of its generation; `parse` of it gives the settings back."""
    return {key: value for key, value in _values(settings).items() if key in settings.generation.defaults}


def _values(settings: VerlSettings) -> Mapping[str, Any]:
    """The values of every generation's keys."""
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
