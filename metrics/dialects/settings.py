"""Reads a trainer's settings from its configuration into a frozen dataclass.

The annotation of a field gives its kind (bool, int, float, str, or one of these or None). `setting` gives its default and its
allowed words. Combinations of values are checked in each dialect.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from types import UnionType
from typing import Any, ClassVar, Protocol, TypeVar, get_args, get_type_hints

from ratioscope.errors import ConfigError


def not_allowed(field_name: str, value: object, allowed: Iterable[object] | str) -> ConfigError:
    """The error for a setting that its trainer rejects. It names the field, its value and the allowed values."""
    choices = allowed if isinstance(allowed, str) else "one of " + ", ".join(repr(each) for each in allowed)
    return ConfigError(f"{field_name} is {value!r}; allowed: {choices}")


def no_setting(trainer: str, feature: str, choice: str = "another correction") -> ConfigError:
    """The error for a correction that the trainer's settings cannot express."""
    return ConfigError(f"{trainer} has no setting for {feature}; choose {choice}")


def checked_version(version: str | None, versions: Sequence[str], older: Sequence[str] = ()) -> str:
    """The version to reproduce: the first if none is given. ConfigError for an unknown one, or for one of `older` releases."""
    if version is not None and version in older:
        raise ConfigError(
            f"version is {version!r}, older than the releases that are reproduced; wanted one of "
            f"{', '.join(map(repr, versions))}: choose the nearest of these and its names of settings"
        )
    if version is not None and version not in versions:
        raise not_allowed("version", version, versions)
    return versions[0] if version is None else version


def not_compared(version: str | None, versions: Sequence[str]) -> tuple[str, ...]:
    """A warning about a version that a dialect reads like its first one."""
    if not version or version in versions:
        return ()
    return (f"version {version!r} was not compared; read as {versions[0]}",)


class SettingsClass(Protocol):
    """Any dataclass of settings."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A text for each setting that the trainer accepts silently although it does harm."""
        ...


@dataclass(frozen=True)
class Rule:
    """A combination of settings that a trainer rejects."""

    field: str
    """The field that the error names."""
    broken: Callable[[Any], bool]
    """Settings -> whether the trainer rejects them. Any: each dialect has its own Settings."""
    allowed: str
    """The allowed values, in words."""


S = TypeVar("S", bound=SettingsClass)


def setting(default: object, *allowed: str) -> Any:
    """A dataclass field with its default and allowed words. Any: the type that dataclasses.field declares."""
    return field(default=default, metadata={"allowed": allowed})


def read(kind: type[S], config: Mapping[str, Any], **given: Any) -> S:
    """The settings in a configuration mapping. Kinds and words are checked, defaults filled in, unknown keys ignored.

    given: values that override the mapping. A number may be text, because YAML readers return 1e-3 as text. ConfigError names
    the first bad field and its value.
    """
    hints = get_type_hints(kind)
    values = {
        each.name: _checked(each.name, config[each.name], hints[each.name], each.metadata.get("allowed", ()))
        for each in fields(kind)
        if each.name in config and each.name not in given
    }
    return kind(**values, **given)


def check(settings: SettingsClass, rules: Iterable[Rule]) -> None:
    """Raises ConfigError for the first rule that the settings break."""
    for rule in rules:
        if rule.broken(settings):
            raise not_allowed(rule.field, getattr(settings, rule.field), rule.allowed)


def unknown(kind: type[SettingsClass], config: Mapping[str, Any], harmless: Iterable[str] = ()) -> list[str]:
    """Keys of the configuration that no field reads."""
    known = {each.name for each in fields(kind)} | set(harmless)
    return [name for name in config if name not in known]


def changed(settings: SettingsClass, names: Iterable[str] | None = None) -> dict[str, Any]:
    """The settings (or those of them in `names`) that differ from their defaults, in the order of the fields."""
    selected = None if names is None else set(names)
    return {
        each.name: getattr(settings, each.name)
        for each in fields(settings)
        if "allowed" in each.metadata
        and (selected is None or each.name in selected)
        and (each.default is MISSING or getattr(settings, each.name) != each.default)
    }


def yaml_text(tree: Mapping[str, Any]) -> str:
    """Nested mappings of plain values as YAML."""
    return "".join(_yaml_lines(tree, 0))


def section(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The mapping under a key; empty if the key is absent or null. ConfigError for any value but a mapping."""
    value = config.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise not_allowed(name, value, "a mapping")
    return value


def _checked(name: str, value: Any, hint: Any, allowed: tuple[str, ...]) -> Any:
    """The value, converted to the kind of the field's annotation. Any in and out: a configuration value."""
    kinds = set(get_args(hint)) if isinstance(hint, UnionType) else {hint}
    if value is None:
        if type(None) in kinds:
            return None
        raise not_allowed(name, value, allowed or _kind_word(kinds))
    if bool in kinds:
        return _flag(name, value)
    if str in kinds:
        if allowed and value not in allowed:
            raise not_allowed(name, value, (*allowed, None) if type(None) in kinds else allowed)
        return value
    whole = int in kinds and float not in kinds
    try:
        if isinstance(value, bool):
            raise ValueError
        number = float(value)
        if whole and number != int(number):
            raise ValueError
    except (TypeError, ValueError, OverflowError):
        raise not_allowed(name, value, "a whole number" if whole else "a number") from None
    if number != number:
        raise ConfigError(f"{name} is nan; allowed: a number")
    return int(number) if whole else number


def _flag(name: str, value: Any) -> bool:
    words = {True: True, False: False, "true": True, "false": False, "True": True, "False": False}
    if isinstance(value, (bool, str, int)) and value in words:
        return words[value]
    raise not_allowed(name, value, "true or false")


def _kind_word(kinds: set[Any]) -> str:
    return "true or false" if bool in kinds else "a number" if kinds & {int, float} else "a word"


def _yaml_lines(tree: Mapping[str, Any], indent: int) -> Iterator[str]:
    for key, value in tree.items():
        if isinstance(value, Mapping):
            yield f"{' ' * indent}{key}:\n"
            yield from _yaml_lines(value, indent + 2)
        else:
            yield f"{' ' * indent}{key}: {yaml_scalar(value)}\n"


def yaml_scalar(value: object) -> str:
    """A plain value as YAML 1.1 text that reads back as the same value. YAML 1.1 would read 1e-05 and inf as text."""
    if value is None:
        return "null"
    if isinstance(value, float) and math.isinf(value):
        return ".inf" if value > 0 else "-.inf"
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text.replace("e", ".0e") if isinstance(value, float) and "e" in text and "." not in text else text
