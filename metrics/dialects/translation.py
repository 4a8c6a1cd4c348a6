"""Translates corrections between trainers: a configuration as a Correction, and a Correction in a trainer's syntax.

Score centering too, if public text shows its syntax; else why it is not printed.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from ratioscope.errors import ConfigError

from ..analysis.score_centering import Centering
from ..corrections.correction import Correction, Weigh
from . import dialect


def correction_in(name: str, config: Mapping[str, Any]) -> Correction:
    """The trainer's correction with this configuration; ConfigError if no Correction can express it."""
    settings = dialect(name).parse(config)
    return cast(Correction, import_module(f".{name}.correction", __package__).correction_of(settings))


def written(name: str, correction: Correction) -> str:
    """The correction in the trainer's syntax; ConfigError names what the trainer has no setting for."""
    return str(dialect(name).write(correction))


def own_written(name: str, config: Mapping[str, Any]) -> str:
    """The trainer's own configuration in its syntax, with the other settings that must be set beside it."""
    trainer = dialect(name)
    return str(trainer.write(trainer.parse(config)))


def same_effect(name: str, correction: Correction) -> bool:
    """Whether the trainer's settings for the correction mean exactly the same steps.

    If not, the effect may differ in the last digits or at extreme weights, because trainers clamp log-ratios before exp and
    express bands in their own ways.
    """
    try:
        settings = import_module(f".{name}.correction", __package__).settings_for(correction)
        back = import_module(f".{name}.correction", __package__).correction_of(settings)
    except ConfigError:
        return False
    return bool(back.steps == correction.steps and back.gap == correction.gap)


TRAINERS = {"nemo_rl": "NeMo-RL", "skyrl": "SkyRL 0.5", "agent_lightning": "Agent-Lightning"}
"""Name -> the trainer in words. Trainers that are not listed are not known to have score centering."""
NO_TEXT = "Agent-Lightning 1.0.3 has score centering, but no public text that names its setting was found"


def centering_settings(trainer: str, centering: Centering, k: int) -> str:
    """The settings of a centered Centering, lines as the trainer reads them. k: tokens per position.

    ConfigError if the trainer has none, or none that public text shows.
    """
    if trainer == "nemo_rl":
        own = written(trainer, _correction(centering)) or "loss_fn:\n"
        return own.replace("loss_fn:\n", "loss_fn:\n  score_centering: true\n").rstrip("\n")
    if trainer == "skyrl":
        return "\n".join(_skyrl(centering, k))
    raise ConfigError(NO_TEXT if trainer in TRAINERS else f"{trainer} is not known to have score centering")


def _correction(centering: Centering) -> Correction:
    """The weights of a Centering as a Correction."""
    if centering.outside == "one":
        return Correction(centering.name, ())
    return Correction(centering.name, (Weigh("token", centering.low, centering.high, centering.outside),))


def _skyrl(centering: Centering, k: int) -> list[str]:
    """Dot overrides. Its loss `rollout_is` keeps weights from 1 - eps_clip_low to 1 + eps_clip_high, and is 0 outside."""
    lines = ["trainer.algorithm.score_centering.enabled=true", f"trainer.algorithm.score_centering.top_k={k}"]
    if centering.outside == "one":
        return ["trainer.algorithm.policy_loss_type=reinforce", *lines]
    if centering.outside == "clamp":
        raise ConfigError("no public text shows SkyRL's score centering with truncated weights")
    bounds = (f"low={1 - centering.low:g}", f"high={centering.high - 1:g}")
    clip = [f"trainer.algorithm.eps_clip_{bound}" for bound in bounds]
    return ["trainer.algorithm.policy_loss_type=rollout_is", *clip, *lines]
