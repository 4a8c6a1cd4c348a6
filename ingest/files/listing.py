"""The files in a run's folders: Parquet files and logs by path, and foreign files. Opens none, follows no link.

The folder of a run on a store holds a part of its files, see ingest/remote/mirror.py.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from ratioscope.errors import SourceError, Unread
from ratioscope.inside import FolderEntry, entries, entries_at, folder, kind
from ratioscope.layout import COMMITS, OVERALL, READINGS, SCALARS, STATISTICS, TOKENS, TOPK
from ratioscope.record import reading_fault

from ..remote.opening import mirror_at
from .quarantine import printable

_STEP_FOLDER = re.compile(r"step=-?\d{1,19}")
_MOST_ENTRIES = 4_000_000
_FIRST, _FAR, _AT_ONCE = 32, 0.001, 16
"""A local disk lists a folder in 0.03 ms, a network file system in several. Sixteen requests at a time are few for each."""


@dataclass
class Listing:
    """Paths relative to the run.

    Names that begin with a dot or an underscore are left out: files being written, or another program's marks.
    """

    token_files: set[str] = field(default_factory=set)
    """Files of token rows."""
    segments: set[str] = field(default_factory=set)
    scalars: set[str] = field(default_factory=set)
    """Files of scalars."""
    overall: set[str] = field(default_factory=set)
    """Files of overall statistics."""
    logs: set[str] = field(default_factory=set)
    """Commit logs."""
    readings: set[str] = field(default_factory=set)
    """Files of readings and of top-k."""
    foreign: dict[str, str] = field(default_factory=dict)
    """path -> why it is no file of a run."""
    unlisted: set[str] = field(default_factory=set)
    """Folders that the store failed to list; they are foreign, too."""
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
        {
            TOKENS: result.token_files,
            STATISTICS: result.segments,
            SCALARS: result.scalars,
            OVERALL: result.overall,
        }.get(part, result.readings).add(path)
    _files(root, COMMITS, ".jsonl", result.logs, result)
    _files(root, STATISTICS, ".parquet", result.segments, result)
    _files(root, SCALARS, ".parquet", result.scalars, result)
    _files(root, OVERALL, ".parquet", result.overall, result)
    _steps(root, TOKENS, result.token_files, result)
    _steps(root, TOPK, result.readings, result)
    for entry in _visible(READINGS, partial(entries, root, READINGS), result):
        path = f"{READINGS}/{entry.name}"
        if fault := reading_fault(entry.name):
            result.foreign[path] = fault
        elif not entry.is_folder:
            result.foreign[path] = f"it is {kind(entry.mode)}, not a folder"
        else:
            _steps(root, path, result.readings, result)
    return result


def logs(root: Path) -> tuple[set[str], str | None]:
    """The commit logs alone, and why the store failed to list them: a reader that follows a run asks at every refresh."""
    result = Listing()
    _files(root, COMMITS, ".jsonl", result.logs, result)
    return result.logs, result.foreign[COMMITS] if COMMITS in result.unlisted else None


def _steps(root: Path, path: str, into: set[str], result: Listing) -> None:
    steps = []
    for entry in _visible(path, partial(entries, root, path), result):
        own = f"{path}/{entry.name}"
        if not _STEP_FOLDER.fullmatch(entry.name):
            result.foreign[own] = "it is no folder of a step; wanted step=<number>"
        elif not entry.is_folder:
            result.foreign[own] = f"it is {kind(entry.mode)}, not a folder"
        else:
            steps.append(entry.name)
    if steps:
        with suppress(OSError), folder(root, path) as at:  # gone since: so is all that was in it
            side_by_side = _side_by_side(lambda name: _listed(partial(entries_at, at, name), result), steps)
            for name, found in zip(steps, side_by_side, strict=True):
                _take(f"{path}/{name}", ".parquet", _counted(f"{path}/{name}", found, result), (into, result))


def _side_by_side(listed: Callable[[str], "_FolderEntries"], names: Sequence[str]) -> Iterator["_FolderEntries"]:
    """Each folder, in order. If the first ones take long, the store is far away, and it is asked for several at a time."""
    began = time.perf_counter()
    first = [listed(name) for name in names[:_FIRST]]
    is_far = time.perf_counter() - began > _FAR * len(first)
    yield from first
    if not is_far:
        yield from map(listed, names[_FIRST:])
        return
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        yield from pool.map(listed, names[_FIRST:])


def _files(root: Path, path: str, ending: str, into: set[str], result: Listing) -> None:
    _take(path, ending, _visible(path, partial(entries, root, path), result), (into, result))


def _take(path: str, ending: str, found: Sequence[FolderEntry], to: tuple[set[str], Listing]) -> None:
    """Sorts the entries of a folder into files of the run and foreign ones."""
    into, result = to
    for entry in found:
        own = f"{path}/{entry.name}"
        if not entry.is_file:
            result.foreign[own] = f"it is {kind(entry.mode)}, not a regular file"
        elif printable(entry.name) != entry.name:
            result.foreign[own] = "its name is no text"
        elif not entry.name.endswith(ending):
            result.foreign[own] = f"it is no file of a run; wanted a name that ends in {ending}"
        else:
            into.add(own)


_FolderEntries = list[FolderEntry] | SourceError
"""The entries of a folder, or why it cannot be listed."""


def _visible(path: str, listed: Callable[[int], Iterator[FolderEntry]], result: Listing) -> list[FolderEntry]:
    return _counted(path, _listed(listed, result), result)


def _listed(listed: Callable[[int], Iterator[FolderEntry]], result: Listing) -> _FolderEntries:
    try:
        most = _MOST_ENTRIES - result.entries + 1
        return [entry for entry in listed(most) if not entry.name.startswith((".", "_"))]
    except FileNotFoundError:
        return []
    except SourceError as error:
        return error
    except OSError as error:
        return Unread(f"it cannot be listed: {error.strerror}")


def _counted(path: str, found: _FolderEntries, result: Listing) -> list[FolderEntry]:
    """The entries, if all of them may still be looked at."""
    if isinstance(found, SourceError):
        result.foreign[path] = str(found)
        result.unlisted |= {path} if isinstance(found, Unread) else set()
        return []
    left = _MOST_ENTRIES - result.entries
    result.entries += len(found)
    if len(found) > left:
        result.foreign[path] = f"the run holds more than {_MOST_ENTRIES} entries; the rest was not looked at"
        return []
    return found
