"""Translates corrections between trainers: a configuration as a Correction, and a Correction in a trainer's syntax."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from ratioscope.errors import ConfigError

from ..corrections.correction import Correction
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
