"""NeMo-RL's settings printed back as the configuration NeMo-RL reads."""

from typing import Any

from ...corrections.correction import Correction
from ..settings import changed, yaml_text
from .correction import settings_for
from .settings import Settings


def write(correction: Settings | Correction) -> str:
    """The correction as YAML sections; keys at their defaults are left out. What else it changes stands above as comments."""
    settings = settings_for(correction) if isinstance(correction, Correction) else correction
    values = changed(settings)
    threshold = values.pop("seq_logprob_error_threshold", None)
    if settings.truncation or settings.level != "token":
        values["use_importance_sampling_correction"] = settings.use_importance_sampling_correction
    tree: dict[str, Any] = {"loss_fn": values} if values else {}
    if threshold is not None:
        tree["grpo"] = {"seq_logprob_error_threshold": threshold}
    return "".join(f"# {note}\n" for note in _besides(settings)) + yaml_text(tree)


def _besides(settings: Settings) -> list[str]:
    found = (
        (
            settings.is_correction_level is not None,
            "is_correction_level needs pull request 2269: main reads it nowhere",
        ),
        (
            settings.level == "sequence" and settings.is_correction_level is None,
            "the PPO ratio becomes one per sequence, too (GSPO)",
        ),
        (
            settings.force_on_policy_ratio,
            "needs one optimizer step per rollout batch: the PPO ratio is 1, and current stands in for old",
        ),
    )
    return [note for holds, note in found if holds]
