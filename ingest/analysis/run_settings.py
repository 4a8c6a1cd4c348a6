"""The settings of a run as flat keys, per attempt, and the differences between two sets of settings."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ..files.quarantine import printable

PARTS = ("code", "trainer", "versions", "config", "machine")
"""Parts of run.json that hold settings, in the order in which a reader wants them; the rest is the run's name and when it began.
"""
_DTYPE = re.compile(r"^torch\.((?:b?float|u?int)\d+)$")
SOURCE = "config.imported_from"
"""The name of the log or dump that a run was imported from: no setting of the run."""


@dataclass(frozen=True, order=True)
class SettingDifference:
    """A key whose values differ."""

    key: str
    a: str | None
    """The value on the first side; None where it lacks the key."""
    b: str | None
    """The value on the second side, likewise."""

    @property
    def words(self) -> str:
        return f"{self.key} {'unset' if self.a is None else self.a} → {'unset' if self.b is None else self.b}"


def settings(info: Mapping[str, Any], attempt: int | None = None) -> dict[str, str]:
    """Dotted key -> value as JSON, from run.json. attempt: as this attempt had them; the first attempt unless given.

    >>> settings({"trainer": "trl 1.0", "config": {"args": {"lr": 1e-05}, "gpus": [0, 1]}})
    {'trainer': 'trl 1.0', 'config.args.lr': '1e-05', 'config.gpus': '[0, 1]'}
    """
    entries = info.get("attempts")
    known = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    own = next((entry for entry in known if attempt is not None and entry.get("attempt") == attempt), {})
    found = dict(pair for part in PARTS for pair in _flat(part, own.get(part, info.get(part))))
    found.pop(SOURCE, None)
    return found


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> tuple[SettingDifference, ...]:
    """The keys whose values differ, those of the code first."""
    return tuple(
        SettingDifference(key, a.get(key), b.get(key))
        for key in sorted(a.keys() | b.keys(), key=by_part)
        if a.get(key) != b.get(key)
    )


def by_part(key: str) -> tuple[int, str]:
    """The place of a dotted key among others: by the part of run.json that has it, others last, then by its name."""
    part = key.partition(".")[0]
    return (*PARTS, part).index(part), key


def _flat(key: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, part in value.items():
            yield from _flat(f"{key}.{printable(str(name))}", part)
    elif value is not None and value != {}:
        text = value if isinstance(value, str) else json.dumps(value)
        yield key, printable(_DTYPE.sub(r"\1", text))  # str(dtype) and its name are one setting
