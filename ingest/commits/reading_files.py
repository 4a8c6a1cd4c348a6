"""Files of readings, further log-probs of recorded tokens, and of top-k, as their lines in the commit logs describe them."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import READINGS, TOPK
from ratioscope.record import SCHEMA_VERSION, newer_schema, reading_fault
from ratioscope.topk import TOPK as TOPK_NAME

from ..files.quarantine import printable
from .entries import optional_count, seconds, text, whole_number

_FILE = re.compile(rf"(?:{READINGS}/([^/\x00]+)|{TOPK})/step=(-?\d{{1,19}})/[^/.][^/\x00]*\.parquet")
_MOST_MADE_OF = 1 << 16
"""Characters of `made_of` at most, as JSON."""


@dataclass(frozen=True, slots=True)
class ReadingFile:
    """A file of a reading as its commit line describes it."""

    path: str
    reading: str
    """The name of the reading; "top-k" for a file of top-k."""
    writer: str
    attempt: int
    step: int
    rows: int
    tokens: int
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    made_of: str = "{}"
    """The model, versions and settings that made it, as a JSON object with sorted keys."""
    time: float | None = None
    """When the file was committed, in seconds since 1970."""


def committed_reading(entry: Mapping[str, Any], writer: str, attempt: int) -> ReadingFile:
    """The file that a line of kind `reading` or `topk` describes. SourceError names the member that is wrong.

    attempt: that of the log, for lines without one.
    """
    is_topk = entry.get("kind") == TOPK
    path, name = text(entry, "file"), TOPK_NAME if is_topk else text(entry, "reading")
    if (schema := optional_count(entry, "schema")) is not None and schema > SCHEMA_VERSION:
        raise SourceError(newer_schema(schema))
    if not is_topk and (fault := reading_fault(name)):
        raise SourceError(fault)
    match = _FILE.fullmatch(path)
    named = None if is_topk else name
    if match is None or printable(path) != path or match[1] != named or int(match[2]) != whole_number(entry, "step"):
        raise SourceError("a commit names it, but it is no path of a file of this reading and step")
    made_of = entry.get("made_of", {})
    said = json.dumps(made_of, sort_keys=True)
    if not isinstance(made_of, dict) or len(said) > _MOST_MADE_OF:
        raise SourceError(
            f"its commit has made_of {said[:60]}; wanted a JSON object of at most {_MOST_MADE_OF} characters"
        )
    return ReadingFile(
        path,
        name,
        writer,
        whole_number(entry, "attempt") if "attempt" in entry else attempt,
        whole_number(entry, "step"),
        rows=whole_number(entry, "rows", least=0),
        tokens=whole_number(entry, "tokens", least=0),
        bytes=whole_number(entry, "bytes", least=0),
        sha256=text(entry, "sha256"),
        made_of=said,
        time=seconds(entry),
    )


def by_reading(files: Iterable[ReadingFile]) -> dict[str, dict[int, tuple[ReadingFile, ...]]]:
    """reading -> step -> its files, the newest first; names and steps ascending."""
    ordered = sorted(files, key=lambda file: (file.reading, file.step, -(file.time or 0.0), file.path))
    result: dict[str, dict[int, list[ReadingFile]]] = {}
    for file in ordered:
        result.setdefault(file.reading, {}).setdefault(file.step, []).append(file)
    return {name: {step: tuple(own) for step, own in steps.items()} for name, steps in result.items()}
