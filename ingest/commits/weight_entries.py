"""Digests of weights in a commit log: which weights the trainer had at a version, and which ones an engine held."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError

from ..files.quarantine import printable
from .entries import optional_count, seconds, text, whole_number

SHORT = 8
"""Characters of the digest of one entry."""
TensorTable = tuple[tuple[str, str], ...]
"""(name, dtype and shape) of each tensor, or group of tensors, by name."""


@dataclass(frozen=True)
class WeightDigests:
    """Digests of all weights of the trainer, or of those that an engine holds."""

    step: int
    version: int
    """The version of the weights."""
    attempt: int
    replica: str | None
    """The engine; None: the trainer."""
    tensors: int
    """Number of tensors."""
    digest: str
    """The digest of all tensors with their names."""
    by: str
    """Who made the digests; only digests of one maker can be compared."""
    names: str
    """Key of the table of names."""
    each: str | None
    """SHORT characters for each entry of the table; None where only the digest of all was written."""
    time: float | None
    """Seconds since 1970."""

    def of(self, entry: int) -> str:
        """The digest of an entry of the table."""
        return "" if self.each is None else self.each[SHORT * entry : SHORT * (entry + 1)]


def weight_digests(entry: Mapping[str, Any], attempt: int) -> WeightDigests:
    """The digests that an entry states; SourceError for an impossible one. attempt: of the log, unless the entry has its own."""
    replica, each = entry.get("replica"), entry.get("each")
    own = optional_count(entry, "attempt")
    return WeightDigests(
        whole_number(entry, "step"),
        whole_number(entry, "version"),
        attempt if own is None else own,
        None if replica is None else printable(text(entry, "replica"))[:200],
        whole_number(entry, "tensors", least=0),
        text(entry, "digest"),
        printable(text(entry, "by"))[:40],
        text(entry, "names"),
        each if isinstance(each, str) and each.isascii() else None,
        seconds(entry),
    )


def name_table(entry: Mapping[str, Any]) -> tuple[str, TensorTable]:
    """(key, table) of the names that an entry states; SourceError for an impossible one."""
    listed = entry.get("entries")
    if not isinstance(listed, list) or not all(_is_pair(pair) for pair in listed):
        raise SourceError(f"its names of weights are {str(listed)[:60]!r}; wanted a list of pairs")
    return text(entry, "names"), tuple((printable(name), printable(form)) for name, form in listed)


def _is_pair(pair: object) -> bool:
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, str) for part in pair)
