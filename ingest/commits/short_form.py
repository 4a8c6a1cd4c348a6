"""The short form of a commit log: its entries without the commits of files that were merged into others.

A reader of a compacted run would otherwise parse one line for each file that is gone. The log itself stays unchanged. `compact`
writes short forms into its own log, each with the length and digest of the bytes that it stands for. A reader whose log begins
with these bytes uses the short form and reads on behind them; otherwise it reads the log. It reads the full log also when it
needs a file that the short form omits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import COMMIT, CONDENSED, WEIGHT_NAMES, WEIGHTS

from .commit_log import UNNUMBERED, Link
from .entries import Segment, TokenFile, optional_count, seconds, text, whole_number

_ENTRIES, _TIMES, _CHARACTERS = 256, 4096, 300_000
"""Most entries, times, and characters of digests of weights in one line, so that it stays far shorter than the longest line that
is read."""


@dataclass(frozen=True)
class OmittedFiles:
    """Files that a log commits and that its short form does not name, and what they add to the writer's counts."""

    files: int = 0
    rows: int = 0
    left_out: int = 0
    """Rows that the budget left out of them."""
    newest: tuple[int, int, int] | None = None
    """(offered, step, dropped) in the commit of the token file with the most sequences offered."""
    last_step: int | None = None
    """The largest step of their token rows."""
    last_commit: float | None = None
    """When the writer last committed before the end of the short form, in seconds since 1970."""


@dataclass(frozen=True)
class ShortForm:
    """The content of the first `bytes` of a log, if they have the digest `sha256`."""

    log: str
    """Path of the log, relative to the run."""
    bytes: int
    sha256: str
    entries: tuple[Mapping[str, Any], ...]
    """The entries of the log, without commits of omitted files."""
    times: Mapping[int, float]
    """step -> when something of it was first committed, as in WriterHistory."""
    omitted: OmittedFiles
    """Totals of the files that the short form leaves out."""
    link: Link = UNNUMBERED
    """State of the log's chain behind these bytes."""


def omitted_files(items: Iterable[TokenFile | Segment], last_commit: float | None) -> OmittedFiles:
    """The numbers that these files add to their writer's counts."""
    every = list(items)
    files = [item for item in every if isinstance(item, TokenFile)]
    rows, budgeted = sum(file.rows for file in files), sum(file.left_out for file in files)
    newest = max(((file.offered or 0, file.step, file.dropped or 0) for file in files), default=None)
    last_step = max((file.step for file in files), default=None)
    return OmittedFiles(len(every), rows, budgeted, newest, last_step, last_commit)


def short_form_lines(short_form: ShortForm) -> list[dict[str, Any]]:
    """The short form as entries for the log of the verb that writes it."""
    times = list(short_form.times.items())
    left = short_form.omitted
    batches = list(_batches(short_form.entries))
    parts = max(1, len(batches), -(-len(times) // _TIMES))
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
            "log": short_form.log,
            "bytes": short_form.bytes,
            "sha256": short_form.sha256,
            "link": [short_form.link.number, short_form.link.chain, short_form.link.is_numbered],
            "part": part,
            "parts": parts,
            "entries": batches[part] if part < len(batches) else [],
            "times": times[part * _TIMES : (part + 1) * _TIMES],
            **(facts if part == 0 else {}),
        }
        for part in range(parts)
    ]


def _batches(entries: Iterable[Mapping[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The entries in batches of which each fits into a line."""
    batch, size = list[dict[str, Any]](), 0
    for entry in entries:
        own = len(str(entry)) if entry.get("kind") in (WEIGHTS, WEIGHT_NAMES) else 0
        if len(batch) == _ENTRIES or (batch and size + own > _CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(dict(entry))
        size += own
    if batch:
        yield batch


def short_form_of_lines(parts: Sequence[Mapping[str, Any]]) -> ShortForm | None:
    """The short form that these entries hold, given in order; None where one is missing. SourceError for an impossible value."""
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
    """The entries, without commits of files that are gone."""
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
    """State of the log's chain. An old ratioscope wrote none: then the log has no numbers."""
    if (link := entry.get("link")) is None:
        return UNNUMBERED
    kinds = ((int,), (str, type(None)), (bool, type(None)))
    if not isinstance(link, list) or len(link) != 3 or any(type(v) not in k for v, k in zip(link, kinds, strict=True)):
        raise SourceError(f"it has link {str(link)[:60]!r}; wanted a number, a digest and whether lines are numbered")
    return Link(*link)


def _three(numbers: list[int]) -> tuple[int, int, int]:
    if len(numbers) != 3:
        raise SourceError(f"it has newest {str(numbers)[:60]!r}; wanted three whole numbers")
    first, second, third = (whole_number({"newest": number}, "newest") for number in numbers)
    return first, second, third


def _listed(entry: Mapping[str, Any], name: str, kind: type) -> list[Any]:
    items = entry.get(name)
    if not isinstance(items, list) or not all(isinstance(item, kind) for item in items):
        raise SourceError(f"it has {name} {str(items)[:60]!r}; wanted a list")
    return items


def _time(pair: Sequence[Any]) -> tuple[int, float]:
    time = seconds({"time": pair[1]}) if len(pair) == 2 else None
    if time is None or type(pair[0]) is not int or abs(pair[0]) >> 63:
        raise SourceError(f"it has a time {str(pair)[:60]!r}; wanted a step and seconds")
    return pair[0], time
