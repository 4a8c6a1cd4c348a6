"""A configuration as JSON, without its secrets."""

import re
from collections.abc import Mapping
from typing import Any

REDACTED = "[redacted]"

_SECRET_WORDS = {
    "apikey", "auth", "authorization", "cookie", "credential", "credentials", "key", "passphrase", "passwd", "password",
    "secret", "token",
}  # fmt: skip
_SPECIAL_TOKENS = {"bos", "eos", "pad", "unk", "sep", "cls", "mask", "image", "video", "audio", "stop", "special"}
_SECRET_VALUE = re.compile(
    r"\b(?:hf_|sk-|ghp_|gho_|github_pat_|glpat-|xox[abp]-|AKIA)[A-Za-z0-9_-]{12,}|://[^/\s:@]+:[^/\s@]+@"
)
_DEPTH = 12


def redacted(config: Any, depth: int = 0) -> Any:
    """The configuration in types JSON knows; text under a secret's name, and text that looks like one, is taken out.

    Numbers stay: `max_tokens` is no secret. What JSON does not know is given by its `str`.
    """
    if depth > _DEPTH:
        return "..."
    if isinstance(config, Mapping):
        return {
            str(key): REDACTED if _is_secret(str(key), value) else redacted(value, depth + 1)
            for key, value in config.items()
        }
    if isinstance(config, (list, tuple, set, frozenset)):
        return [redacted(item, depth + 1) for item in config]
    if config is None or isinstance(config, (bool, int)):
        return config
    if isinstance(config, float):
        return config if abs(config) < float("inf") else str(config)  # JSON has neither NaN nor infinity
    return REDACTED if _SECRET_VALUE.search(str(config)) else str(config)


def _is_secret(name: str, value: Any) -> bool:
    if value is None or isinstance(value, (bool, int, float)):
        return False
    words = set(re.findall(r"[a-z0-9]+", re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()))
    return bool(words & _SECRET_WORDS) and not words & _SPECIAL_TOKENS
