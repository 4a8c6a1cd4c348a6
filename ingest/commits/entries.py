"""Typed values of commit entries. An entry with an impossible member raises SourceError here.

A checksum proves that a line is unchanged, not that its content makes sense, so every member is checked. A path is relative to
the run.
Files of overall statistics, which repeat the rows of slice `all` of several segments, as the commit logs describe them.
Members of the entries of a commit log, each checked: whole numbers, counts, texts, times, names and spans of steps.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import OVERALL, SCALARS, STATISTICS, TOKENS, is_offline
from ratioscope.record import GAPS, POLICIES, SCHEMA_VERSION, SLICED_BY, newer_schema

from ..files.quarantine import printable

_TOKEN_FILE = re.compile(rf"{TOKENS}/step=(-?\d{{1,19}})/[^/.][^/\x00]*\.parquet")
_STATISTICS_FILE = re.compile(rf"{STATISTICS}/[^/.][^/\x00]*\.parquet")
_SCALAR_FILE = re.compile(rf"{SCALARS}/[^/.][^/\x00]*\.parquet")
_GAPS = tuple(GAPS)
_MOST_STEPS_PER_NUMBER = 256
"""Largest number of measured steps in an entry, per number or span in the entry. A span [first, last] of a few bytes could
otherwise name a million steps. A merge names 512 steps for each writer."""

_FILE = re.compile(rf"{OVERALL}/[^/.][^/\x00]*\.parquet")

_INT64 = 1 << 63
_MOST_COUNT = 1 << 48
"""Largest count in an entry. Sums of such counts over all lines of a run fit into 64 bits."""


@dataclass(frozen=True, slots=True)
class OverallFile:
    """A file of overall statistics as its line describes it."""

    path: str
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    segments: tuple[tuple[str, str], ...]
    """(path, digest) of each segment whose rows it repeats, in their order."""


@dataclass(frozen=True, slots=True)
class Origin:
    """A file whose rows were merged into another file."""

    path: str
    sha256: str
    """The digest of its bytes, in hexadecimal digits."""
    writer: str
    policies: frozenset[str] = frozenset()
    """Policies whose log-probs a token file holds; empty for a statistics segment."""
    merged: bool = False
    """True if this file was itself the result of a merge."""
    slice_columns: frozenset[str] = frozenset()
    """Columns of SLICED_BY that a token file holds. The commit line calls them `facts`."""


@dataclass(frozen=True)
class MeasuredGaps:
    """The gaps that a writer measured, and the steps. They are kept because merged statistics do not name writers."""

    writer: str
    gaps: frozenset[str]
    steps: frozenset[int]


@dataclass(frozen=True, slots=True)
class TokenFile:
    """A token file as its commit describes it."""

    path: str
    writer: str
    attempt: int
    step: int
    rows: int
    tokens: int
    """Response tokens in all rows."""
    bytes: int
    """Size of the file; 0 where no commit names it."""
    sha256: str | None
    """Digest of the file; None where no commit names it."""
    policies: frozenset[str]
    """Policies whose log-probs the file holds."""
    gaps: frozenset[str]
    """Gaps of which the file holds both sides."""
    offered: int | None = None
    """Sequences offered to the writer since it opened."""
    dropped: int | None = None
    """Sequences the writer had dropped when it committed the file."""
    time: float | None = None
    """When the file was committed, in seconds since 1970."""
    recovered: bool = False
    """True if no commit names the file, so that its footer was read instead."""
    slices: int = 0
    """Rows that hold only a part of their sequence's tokens."""
    left_out: int = 0
    """Rows that the budget left out of the file. The statistics count them."""
    slice_columns: frozenset[str] = frozenset()
    """Columns of SLICED_BY that the file holds. The commit line calls them `facts`."""
    replaces: tuple[Origin, ...] = ()
    """Files whose rows this file holds. They are no part of the run as long as this file can be read."""
    unmeasured: bool = False
    """True if the writer's statistics of the step do not count the rows of this file."""

    @property
    def recorded(self) -> tuple[tuple[str, str | None], ...]:
        """(path, digest) of every file written during the run: this file, or the files that were merged into it."""
        return _recorded(self.replaces) or ((self.path, self.sha256),)

    @property
    def policies_by_writer(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """(writer, policies) of each of the recorded files."""
        first = tuple((origin.writer, origin.policies) for origin in self.replaces if not origin.merged)
        return first or ((self.writer, self.policies),)

    @property
    def slice_columns_by_writer(self) -> tuple[tuple[str, frozenset[str]], ...]:
        """(writer, slice columns) of each of the recorded files."""
        first = tuple((origin.writer, origin.slice_columns) for origin in self.replaces if not origin.merged)
        return first or ((self.writer, self.slice_columns),)


@dataclass(frozen=True)
class Segment:
    """A statistics segment as its newest commit describes it, or a file of scalars, which never changes."""

    path: str
    writer: str
    attempt: int
    steps: frozenset[int]
    """Steps of all its rows."""
    bytes: int
    """Size of the file; 0 where no commit names it."""
    sha256: str | None
    """Digest of the file; None where no commit names it."""
    time: float | None = None
    """When the segment was last committed, in seconds since 1970."""
    replaces: tuple[Origin, ...] = ()
    """Segments that were merged into this one."""
    measured: tuple[MeasuredGaps, ...] = ()
    """Gaps that the writers of the merged segments had measured; empty for a segment that is no merge."""
    overall: OverallFile | None = None
    """The file that repeats its rows of slice `all`; None where there is none."""

    @property
    def recorded(self) -> tuple[tuple[str, str | None], ...]:
        """(path, digest) of every segment that was written during the run: itself, or what was merged into it."""
        own = () if is_offline(self.writer) else ((self.path, self.sha256),)
        return _recorded(self.replaces) if self.replaces else own

    @property
    def is_scalars(self) -> bool:
        """True if the file holds numbers that a trainer logged, and no statistics."""
        return self.path.startswith(f"{SCALARS}/")

    @property
    def writers_and_steps(self) -> frozenset[tuple[str, int]]:
        """Pairs of (writer, step) whose statistics it contains."""
        pairs = {(part.writer, step) for part in self.measured for step in part.steps}
        return frozenset(pairs or ((self.writer, step) for step in self.steps))


def _recorded(origins: tuple[Origin, ...]) -> tuple[tuple[str, str | None], ...]:
    return tuple((o.path, o.sha256) for o in origins if not o.merged and not is_offline(o.writer))


def committed(entry: Mapping[str, Any], writer: str, attempt: int) -> TokenFile | Segment:
    """The file that a commit entry describes. SourceError names the member that is wrong.

    writer: the writer of the log. `repair` commits files of other writers; such an entry names the file's writer itself.
    """
    path = text(entry, "file")
    writer = text(entry, "writer") if "writer" in entry else writer
    if printable(path) != path:
        raise SourceError("a commit names it, but its name is no text")
    if _STATISTICS_FILE.fullmatch(path) or _SCALAR_FILE.fullmatch(path):
        steps = entry.get("steps")
        if not isinstance(steps, list) or not all(is_int64(step) for step in steps):
            raise SourceError(f"its commit has steps {str(steps)[:60]!r}; wanted a list of whole numbers")
        attempt = whole_number(entry, "attempt") if "attempt" in entry else attempt
        size = whole_number(entry, "bytes", least=0)
        replaces, measured = _origins(entry, _STATISTICS_FILE), _measured(entry, steps)
        return Segment(
            path, writer, attempt, frozenset(steps), size, text(entry, "sha256"), seconds(entry), replaces, measured
        )
    match = _TOKEN_FILE.fullmatch(path)
    if match is None:
        raise SourceError("a commit names it, but it is no path of a token file or statistics segment")
    if int(match[1]) != whole_number(entry, "step"):
        raise SourceError(f"it is committed as step {entry['step']}, which is not the step of its folder")
    return _token_file(entry, path, writer, attempt)


def _token_file(entry: Mapping[str, Any], path: str, writer: str, attempt: int) -> TokenFile:
    if (schema := optional_count(entry, "schema")) is not None and schema > SCHEMA_VERSION:
        raise SourceError(newer_schema(schema))
    return TokenFile(
        path,
        writer,
        whole_number(entry, "attempt") if "attempt" in entry else attempt,
        step=whole_number(entry, "step"),
        rows=whole_number(entry, "rows", least=0),
        tokens=whole_number(entry, "tokens", least=0),
        bytes=whole_number(entry, "bytes", least=0),
        sha256=text(entry, "sha256"),
        policies=names_among(entry, "policies", POLICIES),
        gaps=names_among(entry, "gaps", _GAPS),
        offered=optional_count(entry, "offered"),
        dropped=optional_count(entry, "dropped"),
        time=seconds(entry),
        slices=optional_count(entry, "slices") or 0,
        left_out=optional_count(entry, "left_out") or 0,
        slice_columns=names_among(entry, "facts", SLICED_BY),
        replaces=_origins(entry, _TOKEN_FILE),
        unmeasured=entry.get("unmeasured") is True,
    )


def _origins(entry: Mapping[str, Any], kind: re.Pattern[str]) -> tuple[Origin, ...]:
    origins = entry.get("replaces", [])
    if not isinstance(origins, list) or not all(isinstance(origin, dict) for origin in origins):
        raise SourceError(f"its commit replaces {str(origins)[:60]!r}; wanted a list of files")
    return tuple(_origin(origin, kind) for origin in origins)


def _origin(origin: Mapping[str, Any], kind: re.Pattern[str]) -> Origin:
    path = text(origin, "file")
    if not kind.fullmatch(path):
        raise SourceError(f"its commit replaces {path[:60]!r}, which is no file of its kind")
    return Origin(
        path,
        text(origin, "sha256"),
        text(origin, "writer"),
        names_among(origin, "policies", POLICIES),
        origin.get("merged") is True,
        names_among(origin, "facts", SLICED_BY),
    )


def _measured(entry: Mapping[str, Any], steps: list[int]) -> tuple[MeasuredGaps, ...]:
    items = entry.get("measured", [])
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise SourceError(f"its commit has measured {str(items)[:60]!r}; wanted a list of writers, gaps and steps")
    spans = [step_spans(item) for item in items]
    number = sum(last - first + 1 for own in spans for first, last in own)
    if number > _MOST_STEPS_PER_NUMBER * (len(steps) + sum(1 + len(own) for own in spans)):
        raise SourceError(f"its commit states that {number} steps were measured; the segment has {len(steps)}")
    steps_of = {own: frozenset(step for first, last in own for step in range(first, last + 1)) for own in set(spans)}
    if not all(own <= set(steps) for own in steps_of.values()):
        raise SourceError("its commit states that steps were measured which the segment does not have")
    return tuple(
        MeasuredGaps(text(i, "writer"), names_among(i, "gaps", _GAPS), steps_of[own])
        for i, own in zip(items, spans, strict=True)
    )


def committed_overall(entry: Mapping[str, Any]) -> OverallFile:
    """The file that a line of kind `overall` describes. SourceError names the member that is wrong."""
    path, segments = text(entry, "file"), entry.get("segments")
    if not _FILE.fullmatch(path) or printable(path) != path:
        raise SourceError("a commit names it, but it is no path of a file of overall statistics")
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise SourceError(f"its commit has segments {str(segments)[:60]!r}; wanted a list of files")
    sources = tuple((text(segment, "file"), text(segment, "sha256")) for segment in segments)
    return OverallFile(path, whole_number(entry, "bytes", least=0), text(entry, "sha256"), sources)


def step_spans(item: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    """Steps written as [first, last, first, last, ...], as pairs of first and last."""
    numbers = item.get("steps")
    if not isinstance(numbers, list) or len(numbers) % 2 or not all(is_int64(step) for step in numbers):
        raise SourceError(f"its commit has steps {str(numbers)[:60]!r}; wanted pairs of first and last")
    return tuple((first, last) for first, last in zip(numbers[::2], numbers[1::2], strict=True) if first <= last)


def whole_number(entry: Mapping[str, Any], name: str, least: int = -_INT64) -> int:
    """A member that must be a 64-bit whole number of at least `least`. A count (`least` is 0 or more) has at most 48 bits."""
    value = entry.get(name)
    if type(value) is int and least <= value < (_MOST_COUNT if least >= 0 else _INT64):
        return value
    raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a whole number")


def optional_count(entry: Mapping[str, Any], name: str) -> int | None:
    """A member that must be a count; None where it is absent or null."""
    return None if entry.get(name) is None else whole_number(entry, name, least=0)


def text(entry: Mapping[str, Any], name: str) -> str:
    """A member that must be a text."""
    value = entry.get(name)
    if not isinstance(value, str):
        raise SourceError(f"its commit has {name} {str(value)[:60]!r}; wanted a text")
    return value


def seconds(entry: Mapping[str, Any]) -> float | None:
    """The member `time` in seconds since 1970; None where it is absent or outside the years 1970 to 9999."""
    value = entry.get("time")
    return float(value) if isinstance(value, int | float) and 0 <= value < 253402300800 else None


def names(value: object) -> frozenset[str]:
    """The texts in a list; empty for any other value."""
    return frozenset(item for item in value if isinstance(item, str)) if isinstance(value, list) else frozenset()


def names_among(entry: Mapping[str, Any], name: str, allowed: tuple[str, ...]) -> frozenset[str]:
    """The names that the member lists, without those that are not in `allowed`."""
    value = entry.get(name)
    if not isinstance(value, list):
        return frozenset()
    try:
        return _among(tuple(value), allowed)
    except TypeError:  # an item of the list is no text and cannot be hashed
        return frozenset(item for item in value if isinstance(item, str) and item in allowed)


@lru_cache(256)
def _among(names: tuple[str, ...], allowed: tuple[str, ...]) -> frozenset[str]:
    """The known ones of these names. One set is shared by all files with equal names: a run has hundreds of thousands."""
    return frozenset(name for name in names if name in allowed)


def is_int64(value: object) -> bool:
    return type(value) is int and -_INT64 <= value < _INT64
