"""The files in a run's folders: Parquet files and logs by path, and foreign files. Opens none, follows no link.

The folder of a run on a store holds a part of its files, see ingest/remote/mirror.py.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

from ratioscope.errors import SourceError
from ratioscope.inside import Entry, entries, kind
from ratioscope.layout import COMMITS, READINGS, SCALARS, STATISTICS, TOKENS
from ratioscope.record import reading_fault

from ..remote.opening import mirror_at
from .quarantine import printable

_STEP_FOLDER = re.compile(r"step=-?\d{1,19}")
_MOST_ENTRIES = 4_000_000


@dataclass
class Listing:
    """Paths relative to the run.

    Names that begin with a dot or an underscore are left out: files being written, or another program's marks.
    """

    token_files: set[str] = field(default_factory=set)
    segments: set[str] = field(default_factory=set)
    """Statistics segments."""
    scalars: set[str] = field(default_factory=set)
    """Files of scalars."""
    logs: set[str] = field(default_factory=set)
    """Commit logs."""
    readings: set[str] = field(default_factory=set)
    """Files of readings."""
    foreign: dict[str, str] = field(default_factory=dict)
    """path -> why it is no file of a run."""
    is_partial: bool = False
    """True if a store may have further files of the run, which were not listed."""
    entries: int = 0
    """Number of directory entries that were looked at."""

    @property
    def parquet_files(self) -> set[str]:
        """Token files, statistics segments and files of scalars."""
        return self.token_files | self.segments | self.scalars


def listing(root: Path, *, whole: bool = False) -> Listing:
    """Everything in the folders of a run, in one pass. At most a few million entries are looked at.

    whole: for a run on a store, list what the store has, too. That takes a request per thousand files.
    """
    mirror = mirror_at(root)
    result = Listing(is_partial=mirror is not None and not whole)
    for path in mirror.paths() if mirror is not None and whole else ():
        part = path.partition("/")[0]
        {TOKENS: result.token_files, STATISTICS: result.segments, SCALARS: result.scalars}.get(
            part, result.readings
        ).add(path)
    _files(root, COMMITS, ".jsonl", result.logs, result)
    _files(root, STATISTICS, ".parquet", result.segments, result)
    _files(root, SCALARS, ".parquet", result.scalars, result)
    _steps(root, TOKENS, result.token_files, result)
    for entry in _entries(root, READINGS, result):
        path = f"{READINGS}/{entry.name}"
        if fault := reading_fault(entry.name):
            result.foreign[path] = fault
        elif not entry.is_folder:
            result.foreign[path] = f"it is {kind(entry.mode)}, not a folder"
        else:
            _steps(root, path, result.readings, result)
    return result


def logs(root: Path) -> set[str]:
    """The commit logs alone: a reader that follows a run lists them at every refresh."""
    result = Listing()
    _files(root, COMMITS, ".jsonl", result.logs, result)
    return result.logs


def _steps(root: Path, folder: str, into: set[str], result: Listing) -> None:
    for entry in _entries(root, folder, result):
        path = f"{folder}/{entry.name}"
        if not _STEP_FOLDER.fullmatch(entry.name):
            result.foreign[path] = "it is no folder of a step; wanted step=<number>"
        elif not entry.is_folder:
            result.foreign[path] = f"it is {kind(entry.mode)}, not a folder"
        else:
            _files(root, path, ".parquet", into, result)


def _files(root: Path, folder: str, ending: str, into: set[str], result: Listing) -> None:
    for entry in _entries(root, folder, result):
        path = f"{folder}/{entry.name}"
        if not entry.is_file:
            result.foreign[path] = f"it is {kind(entry.mode)}, not a regular file"
        elif printable(entry.name) != entry.name:
            result.foreign[path] = "its name is no text"
        elif not entry.name.endswith(ending):
            result.foreign[path] = f"it is no file of a run; wanted a name that ends in {ending}"
        else:
            into.add(path)


def _entries(root: Path, folder: str, result: Listing) -> list[Entry]:
    left = _MOST_ENTRIES - result.entries
    try:
        visible = [entry for entry in entries(root, folder, left + 1) if not entry.name.startswith((".", "_"))]
    except FileNotFoundError:
        return []
    except SourceError as error:
        result.foreign[folder] = str(error)
        return []
    except OSError as error:
        result.foreign[folder] = f"it cannot be listed: {error.strerror}"
        return []
    result.entries += len(visible)
    if len(visible) > left:
        result.foreign[folder] = f"the run holds more than {_MOST_ENTRIES} entries; the rest was not looked at"
        return []
    return visible
