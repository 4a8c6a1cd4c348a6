"""Commit entries as values with types: what each line of a commit log claims. A claim that cannot be is refused here.

A checksum says that a line is as it was written, not that its writer meant well, so every member is checked.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import STATISTICS, TOKENS
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION

from .quarantine import printable

_TOKEN_FILE = re.compile(rf"{TOKENS}/step=(-?\d{{1,19}})/[^/.][^/\x00]*\.parquet")
_STATISTICS_FILE = re.compile(rf"{STATISTICS}/[^/.][^/\x00]*\.parquet")
_INT64 = 1 << 63


@dataclass(frozen=True)
class TokenFile:
    """A committed token file. `recovered`: no commit names it, its footer was read instead, and no digest is known.
    slices: rows that hold a part of their sequence's tokens. left_out: rows that the budget left to the statistics."""

    path: str
    writer: str
    attempt: int
    step: int
    rows: int
    tokens: int
    bytes: int
    sha256: str | None
    policies: frozenset[str]
    gaps: frozenset[str]
    offered: int | None = None
    dropped: int | None = None
    time: float | None = None
    recovered: bool = False
    slices: int = 0
    left_out: int = 0


@dataclass(frozen=True)
class Segment:
    """A statistics segment as its newest commit describes it; `steps` are those of all its rows. sha256 None: recovered."""

    path: str
    writer: str
    attempt: int
    steps: frozenset[int]
    bytes: int
    sha256: str | None
    time: float | None = None


def committed(entry: Mapping[str, Any], writer: str, attempt: int) -> TokenFile | Segment:
    """What a commit entry describes; SourceError says which member is not as it should be."""
    path = text(entry, "file")
    if printable(path) != path:
        raise SourceError("a commit names it, but its name is no text")
    if _STATISTICS_FILE.fullmatch(path):
        return _segment(entry, path, writer, attempt)
    found = _TOKEN_FILE.fullmatch(path)
    if found is None:
        raise SourceError("a commit names it, but it is no path of a token file or statistics segment")
    if int(found[1]) != whole(entry, "step"):
        raise SourceError(f"it is committed as step {entry['step']}, which is not the step of its folder")
    return _token_file(entry, path, writer, attempt)


def _token_file(entry: Mapping[str, Any], path: str, writer: str, attempt: int) -> TokenFile:
    if (schema := optional(entry, "schema")) is not None and schema > SCHEMA_VERSION:
        raise SourceError(newer_schema(schema))
    return TokenFile(
        path,
        writer,
        whole(entry, "attempt") if "attempt" in entry else attempt,
        step=whole(entry, "step"),
        rows=whole(entry, "rows", least=0),
        tokens=whole(entry, "tokens", least=0),
        bytes=whole(entry, "bytes", least=0),
        sha256=text(entry, "sha256"),
        policies=_names(entry, "policies") & frozenset(POLICIES),
        gaps=_names(entry, "gaps") & frozenset(GAPS),
        offered=optional(entry, "offered"),
        dropped=optional(entry, "dropped"),
        time=seconds(entry),
        slices=optional(entry, "slices") or 0,
        left_out=optional(entry, "left_out") or 0,
    )


def _segment(entry: Mapping[str, Any], path: str, writer: str, attempt: int) -> Segment:
    steps = entry.get("steps")
    if not isinstance(steps, list) or not all(_is_int64(step) for step in steps):
        raise SourceError(f"its commit has steps {str(steps)[:60]!r}; wanted a list of whole numbers")
    attempt = whole(entry, "attempt") if "attempt" in entry else attempt
    size = whole(entry, "bytes", least=0)
    return Segment(path, writer, attempt, frozenset(steps), size, text(entry, "sha256"), seconds(entry))


def newer_schema(found: int) -> str:
    return (
        f"it has schema version {found}; this ratioscope reads up to {SCHEMA_VERSION}: pip install --upgrade ratioscope"
    )


def whole(entry: Mapping[str, Any], name: str, least: int = -_INT64) -> int:
    """A member that must be a 64-bit whole number of at least `least`."""
    value = entry.get(name)
    if isinstance(value, int) and _is_int64(value) and value >= least:
        return value
    raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a whole number")


def optional(entry: Mapping[str, Any], name: str) -> int | None:
    return None if entry.get(name) is None else whole(entry, name, least=0)


def text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str):
        raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a text")
    return value


def seconds(entry: Mapping[str, Any]) -> float | None:
    """`time`, seconds since 1970; None where it is absent or no time a clock shows (years 1970 to 9999)."""
    value = entry.get("time")
    return float(value) if isinstance(value, int | float) and 0 <= value < 253402300800 else None


def _names(entry: Mapping[str, Any], name: str) -> frozenset[str]:
    value = entry.get(name, [])
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def _is_int64(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -_INT64 <= value < _INT64
