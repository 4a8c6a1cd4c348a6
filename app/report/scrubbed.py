"""Configuration, notes and paths without what must not be passed on: keys, passwords, and whose home folder it was.

The collector takes secrets out of what it writes; a report is sent around and may be of a run that others wrote.
"""

import re
from typing import Any

from ratioscope.collectors.redaction import REDACTED, redacted

_SECRET = re.compile(
    r"\b(?:hf_|sk-|gh[pousr]_|github_pat_|glpat-|wandb_v1_|xox[abprs]-|A[KS]IA|AIza)[A-Za-z0-9_-]{12,}|"
    r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|-----BEGIN [A-Z ]*PRIVATE KEY-----.*|(?<=[Bb]earer )[\w.=-]{12,}|"
    r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)|(?i:(?<=api_key=)|(?<=token=)|(?<=password=)|(?<=secret=))[^\s&,;]{6,}",
    re.DOTALL,
)
_HOME = re.compile(r"(?:/home/|/Users/|[A-Za-z]:\\Users\\)[^/\\\s:\"']+|/root(?=/|$)")


def scrubbed_text(text: str) -> str:
    """The text with whatever looks like a secret taken out and home folders as ~.

    >>> scrubbed_text("loaded /home/ann/run with hf_abcdefghijklmnopqrst")
    'loaded ~/run with [redacted]'
    """
    return _HOME.sub("~", _SECRET.sub(REDACTED, text))


def scrubbed(config: Any) -> Any:
    """A configuration, as JSON holds it, without secrets: by the name of a member or by the look of its value."""
    return _each_text(redacted(config))


def _each_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {scrubbed_text(key): _each_text(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_each_text(item) for item in value]
    return scrubbed_text(value) if isinstance(value, str) else value
