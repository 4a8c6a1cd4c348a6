"""From one trainer's syntax to another's: what a configuration does as a Correction, and how a trainer writes one down."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, cast

from ratioscope.errors import ConfigError

from ..corrections.correction import Correction
from . import dialect


def correction_in(name: str, config: Mapping[str, Any], version: str | None = None) -> Correction:
    """The steps that the trainer takes with this configuration; ConfigError where no Correction can say them."""
    trainer = dialect(name)
    settings = trainer.parse(config) if version is None else trainer.parse(config, version)
    return cast(Correction, import_module(f".{name}.correction", __package__).correction_of(settings))


def written(name: str, correction: Correction) -> str:
    """The correction in the trainer's syntax; ConfigError with what it has no setting for."""
    return str(dialect(name).write(correction))


def own_written(name: str, config: Mapping[str, Any]) -> str:
    """The trainer's own configuration as the trainer reads it, with what must be set beside it."""
    trainer = dialect(name)
    return str(trainer.write(trainer.parse(config)))


def same_effect(name: str, correction: Correction) -> bool:
    """Whether what the trainer would do is said by its settings step for step.

    A trainer clamps log-ratios before it exponentiates, and says a band its own way: then the effect may differ in the
    last digits or at extreme weights.
    """
    try:
        settings = import_module(f".{name}.correction", __package__).settings_for(correction)
        back = import_module(f".{name}.correction", __package__).correction_of(settings)
    except ConfigError:
        return False
    return bool(back.steps == correction.steps and back.gap == correction.gap)
