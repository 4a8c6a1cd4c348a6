"""Checks of the collector's options: ConfigError with what was found and what is wanted."""

from collections.abc import Mapping

from ratioscope.errors import ConfigError
from ratioscope.record import POLICIES

from .batch.text_policy import TEXTS

EXISTING = ("resume", "new", "error")


def check_choices(
    text: str, queue_batches: int, when_full: str, writer: str | None, existing: str | None = None
) -> None:
    """ConfigError for an option that is none of its choices."""
    if text not in TEXTS:
        raise ConfigError(f"text is {text!r}; wanted one of {', '.join(TEXTS)}")
    if queue_batches < 1:
        raise ConfigError(f"queue_batches is {queue_batches}; wanted at least 1")
    if when_full not in ("drop", "wait") or writer not in (None, "process", "thread"):
        raise ConfigError(
            f"when_full is {when_full!r} and writer {writer!r}; wanted 'drop' or 'wait', and 'process' or 'thread'"
        )

    if existing not in (None, *EXISTING):
        raise ConfigError(f"existing is {existing!r}; wanted one of {', '.join(EXISTING)}, or None")


def resolution_of(given: Mapping[str, float]) -> dict[str, float]:
    """The resolution of each policy; ConfigError for another name, or for no size."""
    sizes = {policy: float(size) for policy, size in given.items() if policy in POLICIES and 0 < size < 1e3}
    if len(sizes) < len(given):
        wanted = f"one of {', '.join(POLICIES)} with the largest error of its log-probs"
        raise ConfigError(
            f"resolution is {dict(given)}; wanted {wanted}, such as {{'rollout': 5e-5}} for four decimals"
        )
    return sizes
