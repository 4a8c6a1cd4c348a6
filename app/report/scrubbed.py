"""Configuration, notes and paths without what must not be passed on: keys, passwords, and whose home folder it was.

The collector takes secrets out of what it writes; a report is sent around and may be of a run that others wrote.
"""

import re
from typing import Any

from ratioscope.kept_settings import kept
from ratioscope.redaction import without_secrets

_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:\"']+|/root(?=/|$)")


def scrubbed_text(text: str) -> str:
    """The text with whatever looks like a secret taken out and home folders as ~.

    >>> scrubbed_text("loaded /home/ann/run with hf_abcdefghijklmnopqrst")
    'loaded ~/run with [redacted]'
    """
    return _without_home(without_secrets(text))


def scrubbed(config: dict[str, Any]) -> dict[str, Any]:
    """A configuration, as JSON holds it, without secrets: by the name of a member or by the look of its value."""
    return kept(config, _without_home).settings


def _without_home(text: str) -> str:
    return _HOME.sub("~", text)
