"""A trainer's configuration as text: JSON or YAML, read without anything in it being run, or refused with the reason."""

import json
from typing import Any

from ratioscope.errors import ConfigError, MissingExtra

DEEPEST = 12
"""Levels of nesting that a configuration may have."""


def mapping_in(text: str, place: str = "the text") -> dict[str, Any]:
    """The mapping that the text holds. place: what to call it in errors."""
    try:
        value = json.loads(text)
    except RecursionError:
        raise ConfigError(f"{place} is nested too deeply") from None
    except ValueError:
        value = _yaml(text, place)
    if not isinstance(value, dict):
        raise ConfigError(f"{place} holds a {type(value).__name__}; wanted a mapping of settings, as YAML or JSON")
    _check(value, place)
    return value


def _yaml(text: str, place: str) -> Any:
    try:
        import yaml
    except ImportError:
        raise MissingExtra(f"reading {place} as YAML (it is no JSON)", "dashboard") from None
    try:
        # An alias may stand for a mapping of aliases: a few lines would become more than any memory holds.
        aliases = any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader))
        value = None if aliases else yaml.safe_load(text)
    except yaml.YAMLError as problem:
        raise ConfigError(f"{place} is neither JSON nor YAML: {' '.join(str(problem).split())}") from None
    except (RecursionError, ValueError):  # ValueError: a date that is none
        raise ConfigError(f"{place} is neither JSON nor YAML that can be read") from None
    if aliases:
        raise ConfigError(f"{place} has YAML aliases (*name); write out what they stand for")
    return value


def _check(value: Any, place: str, depth: int = 0) -> None:
    """ConfigError for what no trainer's configuration holds: keys that are no words, nesting without end."""
    if depth > DEEPEST:
        raise ConfigError(f"{place} is nested too deeply")
    if isinstance(value, dict):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise ConfigError(f"{place} has the key {key!r}; wanted names of settings")
            _check(inner, place, depth + 1)
    elif isinstance(value, list):
        for inner in value:
            _check(inner, place, depth + 1)
