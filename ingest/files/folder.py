"""Checks a path that a user gave as a run. The error says what the path is instead, and what to try."""

import difflib
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from shlex import quote

from ratioscope.errors import SourceError
from ratioscope.inside import entries, is_file
from ratioscope.layout import COMMITS, RUN_FILE, RUN_MEMBERS, STATISTICS, TOKENS, is_offline
from ratioscope.metrics.digits import first_few

HOLDS = f"a run folder holds {RUN_FILE}, {TOKENS}/, {STATISTICS}/ and {COMMITS}/"
DEMO = "`ratioscope demo` opens one"
_MOST_LOOKED_AT = 2000
_MOST_ENTERED = 100
_MOST_SHOWN = 5


def run_folder(path: str | os.PathLike[str], *, is_to_repair: bool = False) -> Path:
    """The path as a Path, if it is a run. SourceError says why it is not.

    is_to_repair: a broken run.json is no error here if anything is recorded beside it.
    """
    folder = Path(path)
    try:
        mode = folder.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SourceError(f"{folder} does not exist{_similar(folder)}; {HOLDS}, {DEMO}") from error
    except (OSError, ValueError) as error:
        raise SourceError(f"{str(folder)!r} cannot be opened: {error}") from error
    if not stat.S_ISDIR(mode):
        inside = next((parent for parent in folder.absolute().parents if is_run(parent)), None)
        hint = f"; it lies in the run {inside}: open that" if inside is not None else f"; {HOLDS}"
        raise SourceError(f"{folder} is {'a file' if stat.S_ISREG(mode) else 'no folder'}, wanted a run folder{hint}")
    if not is_run(folder):
        raise SourceError(_no_run(folder))
    has_records = _has_records(folder, but=is_offline)
    if not (is_to_repair and has_records) and (fault := run_file_fault(folder, is_needed=not has_records)):
        beside = ", and nothing is recorded beside it"
        do = f"; what is recorded beside it then opens. `ratioscope repair {quote(str(folder))}` moves it"
        raise SourceError(
            f"{folder / RUN_FILE} {fault}{'' if has_records else beside}; wanted the JSON object that a collector writes:"
            f" move the file away{do if has_records else ', or name another folder'}"
        )
    return folder


def is_run(folder: Path) -> bool:
    """True if the folder holds run.json, or any token file, commit log or statistics segment."""
    return is_file(folder, RUN_FILE) or _has_records(folder)


def _has_records(folder: Path, but: Callable[[str], bool] = lambda _: False) -> bool:
    """True if there is any token file, commit log or statistics segment. but: names that do not count."""
    marks = ((TOKENS, "step="), (COMMITS, ".jsonl"), (STATISTICS, ".parquet"))
    return any(mark in name and not but(name) for part, mark in marks for name in _names(folder, part))


def run_file_fault(folder: Path, *, is_needed: bool = False) -> str:
    """The reason why run.json cannot be that of a run; empty if it can. is_needed: a folder without the file is at fault, too."""
    from .quarantine import printable
    from .run_file import run_file  # loads numpy, which `ratioscope --help` has no use for

    found = run_file(folder)
    if not is_needed and (found.is_unread or not is_file(folder, RUN_FILE)):
        return ""
    if found.note is None and RUN_MEMBERS.isdisjoint(found.info):
        named = ", ".join(sorted(map(printable, found.info))[:_MOST_SHOWN]) or "no member"
        return f"has {named}, and none of {', '.join(sorted(RUN_MEMBERS))}"
    return "" if found.info or found.note is None else found.note.removeprefix(f"{RUN_FILE} ")


def runs_in(folder: str | os.PathLike[str]) -> list[Path]:
    """The runs that lie directly in a folder, by name."""
    path = Path(folder)
    return [path / name for name in sorted(_names(path)) if (path / name).is_dir() and is_run(path / name)]


def _no_run(folder: Path) -> str:
    try:
        names = sorted(_names(folder, strict=True))
    except OSError as error:
        return f"{folder} cannot be listed: {error.strerror}"
    if not names:
        return f"{folder} is an empty folder: nothing has been recorded in it yet; {HOLDS}, {DEMO}"
    if runs := runs_in(folder) or [run for name in names[:_MOST_ENTERED] for run in runs_in(folder / name)]:
        shown = first_few([*map(str, runs)], _MOST_SHOWN)
        return f"{folder} is no run, but holds {'runs' if len(runs) > 1 else 'one'}: open {shown}"
    shown = ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
    has_files = _has_files(folder) or any(_has_files(folder, name) for name in names[:_MOST_ENTERED])
    dumps = f"; if a trainer wrote them: ratioscope import {quote(str(folder))} -o RUN" if has_files else ""
    return f"{folder} is no run: it holds {shown}{dumps}; {HOLDS}, {DEMO}"


def _has_files(folder: Path, part: str = "") -> bool:
    try:
        return any(entry.is_file for entry in entries(folder, part, _MOST_LOOKED_AT))
    except OSError:
        return False


def _similar(path: Path) -> str:
    close = difflib.get_close_matches(path.name, list(_names(path.parent)), n=1)
    return f"; did you mean {path.parent / close[0]}" if close else ""


def _names(folder: Path, part: str = "", *, strict: bool = False) -> Iterator[str]:
    """Names in the folder, or in its sub-folder `part`; some thousands at most. None where it cannot be listed."""
    try:
        yield from (entry.name for entry in entries(folder, part, _MOST_LOOKED_AT))
    except OSError:
        if strict:
            raise
