"""The settings of a trainer's own correction, as run.json has them, in the shape that the trainer's dialect reads."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.metrics.known.trainers import DIALECT, trainer_named

RecordedConfig = Mapping[str, Any]


@dataclass(frozen=True)
class OwnSettings:
    """The part of a configuration that a dialect reads."""

    dialect: str
    config: RecordedConfig
    """`Any` values: each dialect checks its own."""


def own_settings(info: Mapping[str, Any]) -> OwnSettings | None:
    """The settings of the run's own correction; None if they are not on record, or if the trainer has no dialect."""
    trainer = trainer_named(info.get("trainer"))
    config = info.get("config")
    if trainer is None or trainer not in _READ or not isinstance(config, Mapping):
        return None
    settings = _READ[trainer](config)
    return None if settings is None else OwnSettings(DIALECT.get(trainer, trainer), settings)


def _section(config: RecordedConfig, name: str) -> RecordedConfig:
    value = config.get(name)
    return value if isinstance(value, Mapping) else {}


def _trl(config: RecordedConfig) -> RecordedConfig | None:
    args = _section(config, "args") or config
    return args if "vllm_importance_sampling_mode" in args else None


def _verl(config: RecordedConfig) -> RecordedConfig | None:
    own = config if "algorithm" in config else _section(config, "config")
    return own if "rollout_correction" in _section(own, "algorithm") else None


def _slime(config: RecordedConfig) -> RecordedConfig | None:
    args = _section(config, "args")
    if "use_tis" not in args:
        return None
    path = args.get("custom_tis_function_path")
    own = {"custom_tis_function_path": path.replace("miles.", "slime.", 1)} if isinstance(path, str) else {}
    return {"args": {**args, **own}}


def _skyrl(config: RecordedConfig) -> RecordedConfig | None:
    return config if _section(_section(config, "trainer"), "algorithm") else None


def _nemo_rl(config: RecordedConfig) -> RecordedConfig | None:
    return config if _section(config, "loss_fn") else None


def _areal(config: RecordedConfig) -> RecordedConfig | None:
    own = _section(config, "areal") or config
    return own if _section(own, "actor") else None


def _fireworks(config: RecordedConfig) -> RecordedConfig | None:
    return config if "tis" in config else None


_READ: Mapping[str, Callable[[RecordedConfig], RecordedConfig | None]] = {
    "trl": _trl, "verl": _verl, "slime": _slime, "miles": _slime, "skyrl": _skyrl, "nemo_rl": _nemo_rl, "areal": _areal,
    "fireworks": _fireworks,
}  # fmt: skip
"""Trainer -> the part of its configuration that its dialect reads; None if that part is not on record."""
