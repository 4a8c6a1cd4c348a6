"""A commit log in short: what it says but for files whose rows others hold, so that a reader need not parse a line per file.

The log stays as it is and `compact` says in its own what the first bytes of it amount to, and their digest. A reader that finds
these bytes takes the short form, and reads on from there; whatever else it finds, it reads the log. It goes back to the log as
soon as a file that was left out is wanted after all.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import COMMIT, CONDENSED

from .chain import UNNUMBERED, Link
from .entries import Segment, TokenFile, optional_count, seconds, text, whole_number

_ENTRIES, _TIMES = 256, 4096
"""Of one line, so that it stays far shorter than the longest that is read."""


@dataclass(frozen=True)
class OmittedFiles:
    """Files that a log commits and its short form does not name: how many, and what they add to the writer's counts. newest:
    (offered, step, dropped) of the token file that was offered last."""

    files: int = 0
    rows: int = 0
    left_out: int = 0
    newest: tuple[int, int, int] | None = None
    last_step: int | None = None
    last_commit: float | None = None


@dataclass(frozen=True)
class ShortForm:
    """The first `bytes` of a log, if they have this digest. link: where its chain is behind them; entries: its lines but for
    commits of files left out; times: as WriterHistory has them."""

    log: str
    bytes: int
    sha256: str
    entries: tuple[Mapping[str, Any], ...]
    times: Mapping[int, float]
    omitted: OmittedFiles
    link: Link = UNNUMBERED


def omitted_files(items: Iterable[TokenFile | Segment], last_commit: float | None) -> OmittedFiles:
    """What these files add to the counts of their writer."""
    every = list(items)
    files = [item for item in every if isinstance(item, TokenFile)]
    rows, budgeted = sum(file.rows for file in files), sum(file.left_out for file in files)
    newest = max(((file.offered or 0, file.step, file.dropped or 0) for file in files), default=None)
    last_step = max((file.step for file in files), default=None)
    return OmittedFiles(len(every), rows, budgeted, newest, last_step, last_commit)


def short_form_lines(found: ShortForm) -> list[dict[str, Any]]:
    """The entries of a verb's log that say it."""
    times = list(found.times.items())
    left = found.omitted
    parts = max(1, -(-len(found.entries) // _ENTRIES), -(-len(times) // _TIMES))
    facts = {
        "files": left.files,
        "rows": left.rows,
        "left_out": left.left_out,
        "newest": None if left.newest is None else list(left.newest),
        "last_step": left.last_step,
        "last_commit": left.last_commit,
    }
    return [
        {
            "kind": CONDENSED,
            "log": found.log,
            "bytes": found.bytes,
            "sha256": found.sha256,
            "link": [found.link.number, found.link.chain, found.link.is_numbered],
            "part": part,
            "parts": parts,
            "entries": [dict(entry) for entry in found.entries[part * _ENTRIES : (part + 1) * _ENTRIES]],
            "times": times[part * _TIMES : (part + 1) * _TIMES],
            **(facts if part == 0 else {}),
        }
        for part in range(parts)
    ]


def short_form_of_lines(parts: Sequence[Mapping[str, Any]]) -> ShortForm | None:
    """What the lines say, given in their order; None where one of them is missing. SourceError for a claim that cannot be."""
    if len(parts) != whole_number(parts[0], "parts", least=1) or [part.get("part") for part in parts] != list(
        range(len(parts))
    ):
        return None
    first = parts[0]
    if any((part.get("log"), part.get("sha256")) != (first.get("log"), first.get("sha256")) for part in parts):
        return None
    entries = tuple(entry for part in parts for entry in _listed(part, "entries", dict))
    times = dict(_time(pair) for part in parts for pair in _listed(part, "times", list))
    return ShortForm(
        text(first, "log"),
        whole_number(first, "bytes", least=0),
        text(first, "sha256"),
        entries,
        times,
        _left(first),
        _link(first),
    )


def kept(entries: Iterable[Mapping[str, Any]], gone: frozenset[str]) -> Iterator[Mapping[str, Any]]:
    """Entries but for commits of files that are gone."""
    return (entry for entry in entries if entry.get("kind") != COMMIT or entry.get("file") not in gone)


def _left(entry: Mapping[str, Any]) -> OmittedFiles:
    newest = entry.get("newest")
    return OmittedFiles(
        whole_number(entry, "files", least=0),
        whole_number(entry, "rows", least=0),
        optional_count(entry, "left_out") or 0,
        None if newest is None else _three(_listed(entry, "newest", int)),
        None if entry.get("last_step") is None else whole_number(entry, "last_step"),
        seconds({"time": entry.get("last_commit")}),
    )


def _link(entry: Mapping[str, Any]) -> Link:
    """Where the chain of the log is; of a log of before there were any where it is not said."""
    if (found := entry.get("link")) is None:
        return UNNUMBERED
    kinds = ((int,), (str, type(None)), (bool, type(None)))
    if (
        not isinstance(found, list)
        or len(found) != 3
        or any(type(v) not in k for v, k in zip(found, kinds, strict=True))
    ):
        raise SourceError(f"it has link {str(found)[:60]!r}; wanted a number, a digest and whether lines are numbered")
    return Link(*found)


def _three(found: list[int]) -> tuple[int, int, int]:
    if len(found) != 3:
        raise SourceError(f"it has newest {str(found)[:60]!r}; wanted three whole numbers")
    first, second, third = (whole_number({"newest": number}, "newest") for number in found)
    return first, second, third


def _listed(entry: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    found = entry.get(name)
    if not isinstance(found, list) or not all(isinstance(item, kind) for item in found):
        raise SourceError(f"it has {name} {str(found)[:60]!r}; wanted a list")
    return found


def _time(pair: Sequence[Any]) -> tuple[int, float]:
    time = seconds({"time": pair[1]}) if len(pair) == 2 else None
    if time is None or type(pair[0]) is not int or abs(pair[0]) >> 63:
        raise SourceError(f"it has a time {str(pair)[:60]!r}; wanted a step and seconds")
    return pair[0], time
