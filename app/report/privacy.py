"""Configuration, notes and paths without secrets: keys, passwords, and the name of the home folder.

The collector removes secrets too. But a report is sent around, and its run may have been written by other software.
"""

import re
from typing import Any

from ratioscope.kept_settings import kept
from ratioscope.redaction import without_secrets

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


def _without_home(text: str) -> str:
    return _HOME.sub("~", text)
