"""Configuration, notes and paths without secrets: keys, passwords, and the name of the home folder.

The collector removes secrets too. But a report is sent around, and its run may have been written by other software.
"""

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar, cast

from ratioscope.kept_settings import kept
from ratioscope.metrics.diagnosis.cause import Cause
from ratioscope.redaction import without_secrets

Value = TypeVar("Value")
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:\"']+|/root(?=/|$)")


def scrubbed_text(text: str) -> str:
    """The text without parts that look like secrets, and with home folders as ~.

    >>> scrubbed_text("loaded /home/ann/run with hf_abcdefghijklmnopqrst")
    'loaded ~/run with [redacted]'
    """
    return _without_home(without_secrets(text))


def scrubbed_settings(config: dict[str, Any]) -> dict[str, Any]:
    """A JSON configuration without secrets, which are found by the name of a member or the look of its value."""
    return kept(config, _without_home).settings


def scrubbed(value: Value) -> Value:
    """The value with every text in it scrubbed, in dataclasses too; the same object if that changes none."""
    new: Any = value  # each kind of value is made again as what it was
    if isinstance(value, str):
        new = scrubbed_text(value)
    elif isinstance(value, dict):
        new = {name: scrubbed(part) for name, part in value.items()}
    elif type(new) is tuple:
        new = tuple([scrubbed(part) for part in new])
    elif isinstance(value, list):
        new = [scrubbed(part) for part in value]
    elif is_dataclass(value) and not isinstance(value, type | Cause):  # a cause has texts of ours alone
        parts = {field.name: getattr(value, field.name) for field in fields(value)}
        changed = {name: new for name, part in parts.items() if (new := scrubbed(part)) is not part and new != part}
        new = replace(value, **changed) if changed else value
    return cast(Value, new)


def _without_home(text: str) -> str:
    return _HOME.sub("~", text)
