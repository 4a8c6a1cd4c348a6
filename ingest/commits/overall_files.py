"""Files of overall statistics, which repeat the rows of slice `all` of several segments, as the commit logs describe them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ratioscope.errors import SourceError
from ratioscope.layout import OVERALL

from ..files.quarantine import printable
from .members import text, whole_number

_FILE = re.compile(rf"{OVERALL}/[^/.][^/\x00]*\.parquet")


@dataclass(frozen=True, slots=True)
class OverallFile:
    """A file of overall statistics as its line describes it."""

    path: str
    """Path relative to the run."""
    bytes: int
    """Size of the file."""
    sha256: str
    """Digest of the file."""
    segments: tuple[tuple[str, str], ...]
    """(path, digest) of each segment whose rows it repeats, in their order."""


def committed_overall(entry: Mapping[str, Any]) -> OverallFile:
    """The file that a line of kind `overall` describes. SourceError names the member that is wrong."""
    path, segments = text(entry, "file"), entry.get("segments")
    if not _FILE.fullmatch(path) or printable(path) != path:
        raise SourceError("a commit names it, but it is no path of a file of overall statistics")
    if not isinstance(segments, list) or not all(isinstance(segment, dict) for segment in segments):
        raise SourceError(f"its commit has segments {str(segments)[:60]!r}; wanted a list of files")
    sources = tuple((text(segment, "file"), text(segment, "sha256")) for segment in segments)
    return OverallFile(path, whole_number(entry, "bytes", least=0), text(entry, "sha256"), sources)
