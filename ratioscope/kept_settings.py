"""A configuration as JSON: without its secrets, bounded, and by allow-list.

Numbers, texts, containers and the fields of dataclasses, namespaces and the like are kept. Any other object is replaced by
the name of its type: its `str` may hold anything, and may raise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from numbers import Integral, Real
from pathlib import PurePath
from types import BuiltinFunctionType, FunctionType, SimpleNamespace
from typing import Any, TypeVar

from .redaction import REDACTED, NameSecrecy, is_secret, name_of, without_secrets

T = TypeVar("T")
DEPTH, MEMBERS, CHARACTERS, NAMED = 12, 10_000, 1 << 18, 100
"""The most levels, members and characters that are kept, and paths that are named."""
_LONGEST, _EDGE = 1 << 13, 1 << 9  # characters of one text
_FIELDS = ("__dataclass_fields__", "model_fields", "__attrs_attrs__", "__struct_fields__", "_fields")
"""Attributes in which classes list their fields: dataclasses, pydantic, attrs, msgspec, named tuples."""
_WORDED = {
    ("torch", "dtype"),
    ("torch", "device"),
    ("numpy", "dtype"),
    ("datetime", "datetime"),
    ("datetime", "timedelta"),
}
"""Types whose `str` is a setting."""


@dataclass
class Kept:
    """The parts of a configuration that may be stored."""

    settings: dict[str, Any] = field(default_factory=dict)
    """The configuration without secrets."""
    secrets: list[str] = field(default_factory=list)
    """Paths of removed secrets, at most NAMED."""
    more: int = 0
    """Number of removed secrets beyond these."""


def kept(config: Any, text: Callable[[str], str] = str) -> Kept:
    """The part of a configuration that may be stored. Never raises, whatever it is given. text: applied to every text that is
    kept.

    >>> kept({"lr": 1e-6, "wandb": {"api_key": "0123"}})
    Kept(settings={'lr': 1e-06, 'wandb': {'api_key': '[redacted]'}}, secrets=['wandb.api_key'], more=0)
    """
    kept = Kept()
    try:
        plain = _Walk(kept, text).plain(config, NameSecrecy.PLAIN, ())
    except Exception as error:
        plain = _because(error)
    kept.settings = plain if isinstance(plain, dict) else {} if config is None else {"config": plain}
    return kept


SettingPath = tuple[str, ...]


class _Walk:
    """One walk through a configuration, with what it may still keep."""

    def __init__(self, kept: Kept, text: Callable[[str], str]) -> None:
        self._found, self._text = kept, text
        self._members, self._characters = MEMBERS, CHARACTERS

    def plain(self, value: Any, name: NameSecrecy, path: SettingPath) -> Any:
        """The value in types JSON knows, as it stands under such a name."""
        self._members -= 1
        if len(path) > DEPTH or self._is_spent:
            return "..."
        try:
            return self._plain(value, name, path)
        except Exception as error:
            return self._because(error)

    def _plain(self, value: Any, name: NameSecrecy, path: SettingPath) -> Any:
        if value is None or value is True or value is False:
            return value
        if isinstance(value, Enum):
            return self.plain(value.value if isinstance(value.value, (str, int, float)) else value.name, name, path)
        if isinstance(value, (Integral, Real)):
            return self._secret(path) if name == NameSecrecy.STRONG else _number(value)
        if isinstance(value, (str, PurePath)):
            return self._plain_text(str.__str__(value) if isinstance(value, str) else str(value), name, path)
        if isinstance(value, (bytes, bytearray)):
            return self._secret(path) if name else f"<{_type(value)} of {len(value)}>"
        if (members := _members_of(value)) is not None:
            return self._dictionary(members, name, path)
        if isinstance(value, (Sequence, Set)):
            return self._list(value, name, path)
        if isinstance(value, (type, FunctionType, BuiltinFunctionType)):
            return f"{value.__module__}.{value.__qualname__}"
        is_worded = any((base.__module__, base.__name__) in _WORDED for base in type(value).__mro__)
        return str(value) if is_worded else f"<{_type(value)}>"

    def _plain_text(self, text: str, name: NameSecrecy, path: SettingPath) -> str:
        seen = text[: _LONGEST + _EDGE]  # some characters beyond the cut, so that a secret across it is seen whole
        if text == REDACTED or is_secret(name, seen) or without_secrets(seen) != seen:
            return self._secret(path)
        text = f"{text[:_LONGEST]}... ({len(text)} characters)" if len(text) > _LONGEST else text
        self._characters -= len(text)
        return self._text(text)

    def _dictionary(
        self, members: Iterable[tuple[Any, Callable[[], Any]]], under: NameSecrecy, path: SettingPath
    ) -> dict[str, Any]:
        pairs = [(self._key(key, under, at), read) for at, (key, read) in enumerate(self._some(members))]
        secrecy = next(
            (_implied_secrecy(read) for key, read in pairs if key.lower() in ("name", "key")), NameSecrecy.PLAIN
        )
        values: dict[str, Any] = {}
        for key, read in pairs:
            if self._is_spent:
                return values | {"...": "..."}
            key = f"{key} ({len(values)})" if key in values else key
            kind = max(name_of(key), secrecy if key.lower() == "value" else NameSecrecy.PLAIN)
            kind = NameSecrecy.PLAIN if secrecy and key.lower() in ("name", "key") else kind
            self._characters -= len(key)
            try:
                values[key] = self.plain(read(), max(under, kind), (*path, key))
            except Exception as error:
                values[key] = self._because(error)
        return values

    @property
    def _is_spent(self) -> bool:
        return self._members < 0 or self._characters < 0

    def _because(self, error: Exception) -> str:
        reason = _because(error)
        self._characters -= len(reason)
        return reason

    def _some(self, members: Iterable[T]) -> list[T]:
        """As many as may still be kept, and one more to tell that there are."""
        return list(islice(members, max(self._members, 0) + 1))

    def _key(self, key: Any, under: NameSecrecy, place: int) -> str:
        """The key as text. Below a secret's name a key that is no plain name may be the secret."""
        key = key.decode("latin-1") if isinstance(key, bytes) else key
        parts = key if isinstance(key, tuple) else (key,)
        text = ", ".join(str(_Walk(Kept(), str).plain(part, NameSecrecy.PLAIN, ())) for part in parts[:DEPTH])
        text = text if len(text) <= 200 else f"{text[:200]}..."
        if text == REDACTED or (under >= NameSecrecy.SECRET and sum(letter.isdigit() for letter in text) > 3):
            self._secret((f"[key {place}]",))
            return f"{REDACTED} {place}"
        return self._text(text)

    def _list(self, value: Iterable[Any], name: NameSecrecy, path: SettingPath) -> list[Any]:
        """Items; of arguments, the one after `--api-key`, of a pair the second."""
        items, found, before = self._some(value), list[Any](), NameSecrecy.PLAIN
        is_pair = len(items) == 2
        for place, item in enumerate(items):
            if self._is_spent:
                found.append("...")
                break
            is_option = isinstance(item, str) and item.startswith("--")
            found.append(self.plain(item, max(name, NameSecrecy.PLAIN if is_option else before), (*path, f"[{place}]")))
            is_name = is_option or (isinstance(item, str) and (item.startswith("-") or (is_pair and place == 0)))
            before = name_of(item) if is_name and "=" not in item else NameSecrecy.PLAIN
            if isinstance(item, str) and item in ("-u", "-p") and _is_secret_after(items[: place + 2]):
                before = NameSecrecy.SECRET
        return sorted(found, key=repr) if isinstance(value, Set) else found

    def _secret(self, path: SettingPath) -> str:
        if len(self._found.secrets) < NAMED:
            self._found.secrets.append(".".join(path).replace(".[", "["))
        else:
            self._found.more += 1
        return REDACTED


def _is_secret_after(arguments: list[Any]) -> bool:
    """True if the last of these is a secret in a command: `curl -u ann:hunter2`, `docker login -p hunter2`."""
    line = " ".join(argument for argument in arguments[-20:] if isinstance(argument, str))[-1000:]
    return isinstance(arguments[-1], str) and not without_secrets(line).endswith(arguments[-1])


def _implied_secrecy(read: Callable[[], Any]) -> NameSecrecy:
    """The secrecy that the name implies for the value, in {"name": "HF_TOKEN", "value": ...}."""
    try:
        name = read()
    except Exception:
        return NameSecrecy.PLAIN
    return name_of(name) if isinstance(name, str) else NameSecrecy.PLAIN


def _members_of(value: Any) -> Iterator[tuple[Any, Callable[[], Any]]] | None:
    """Names and how to read what they name, of what has named members; each reading may raise for itself."""
    kind = type(value)
    if isinstance(value, Mapping):
        return ((key, lambda key=key: value[key]) for key in value)  # type: ignore[misc]
    listed = (
        None
        if isinstance(value, type)
        else next((found for name in _FIELDS if (found := getattr(kind, name, None))), None)
    )
    if isinstance(listed, (Mapping, tuple, list)):
        names = [each if isinstance(each, str) else each.name for each in listed]
        return ((name, lambda name=name: getattr(value, name)) for name in names)  # type: ignore[misc]
    namespace = getattr(sys.modules.get("argparse"), "Namespace", SimpleNamespace)
    if isinstance(value, (SimpleNamespace, namespace)):
        return ((name, lambda name=name: vars(value)[name]) for name in list(vars(value)))  # type: ignore[misc]
    return None


def _number(value: Any) -> Any:
    if isinstance(value, Integral):
        whole = int(value)
        return whole if whole.bit_length() <= 64 else f"<{_type(value)} of {whole.bit_length()} bits>"
    number = float(value)
    return number if math.isfinite(number) else str(number)  # JSON has neither NaN nor infinity


def _type(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")


def _because(error: Exception) -> str:
    return f"not available, because reading it raised {type(error).__name__}"
