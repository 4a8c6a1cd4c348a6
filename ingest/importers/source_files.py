"""The files of a source: which of them may hold rows, in the order of their steps, and what the others are."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ratioscope.errors import SourceError
from ratioscope.inside import open_regular

from .compression import plain_name
from .confinement import FileLimits
from .detection import Candidate, candidates, generic, promised, renamed
from .neighbours import neighbour
from .restricted.torch_files import stated_number
from .row import SetAside
from .scalars.sources import ScalarSource, log_kinds
from .table import ColumnMapping, FileKind, Format

MOST_FILES = 1 << 20
_HEAD = 1 << 14


@dataclass(frozen=True)
class Options:
    """The choices for reading a source."""

    format: Format | None = None
    """The format that the user named; None: it is detected for each file."""
    lines: tuple[ColumnMapping, ...] = ()
    """Lines of a table that the user gave."""
    step: int | None = None
    """The step of rows that name none."""
    limits: FileLimits = FileLimits()
    keys: tuple[ColumnMapping, ...] = ()
    """Further keys, by which rows are joined to those of another source."""


@dataclass
class File:
    """A file of the source, and what became of it."""

    path: Path
    name: str
    """Its path below the source."""
    size: int
    found: tuple[Candidate, ...]
    """The formats that it may have, the likeliest first."""
    is_alone: bool = True
    """False if the source has more files that may be of the same kinds."""
    step: int = -1
    """The step of its rows as far as it is known before they are read: files of one step are read together."""
    read_as: Candidate | None = None
    """The one that it was read in; None if it was not."""
    rows: int = 0
    rejected: int = 0
    """Rows that were not imported."""
    without_step: int = 0
    """Rows that name no step."""
    refused: str | None = None
    """Why nothing of it is imported."""
    set_aside: dict[str, int] = field(default_factory=dict)
    """Sound parts that are no samples of training, in words -> their number."""
    untaken: dict[str, str] = field(default_factory=dict)
    """Fields of a table that may be log-probs and go to no column -> a column of log-probs that is free."""

    def leave_out(self, part: SetAside) -> None:
        """Counts what no row is made of."""
        self.set_aside[part.what] = self.set_aside.get(part.what, 0) + part.count


@dataclass
class SourceNumbers:
    """The numbers of what was read of a source so far."""

    files: list[File]
    passed_over: list[str] = field(default_factory=list)
    """Files that are of no kind that is read, below a folder."""
    beside: dict[str, list[str]] = field(default_factory=dict)
    """A value that a trainer keeps beside its rows -> the names of such files, below a folder."""
    only: dict[str, int] = field(default_factory=dict)
    """Side -> rows that the other side of their format lacks."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def opened(source: Path, options: Options) -> SourceNumbers:
    """The files below a folder, or the one file, in the order of their steps. SourceError where there is none."""
    links: list[str] = []
    paths = list(_below(source, links))
    if not paths:
        only = ", only links, which are not followed" if links else ""
        raise SourceError(f"{source}: there is no file here{only}; give a dump, or a folder of dumps")
    beside = _beside([name for _, name, _ in paths]) if source.is_dir() else {}
    aside = {name for names in beside.values() for name in names}
    files = [_file(path, name, size, _kinds(name, options)) for path, name, size in paths if name not in aside]
    known, lesser = _without_copies([file for file in files if file.found])
    if not known:
        named = ", ".join(name for _, name, _ in paths[:5])
        raise SourceError(
            f"{source}: no file is of a kind that is read ({named}); name the format with --from, or its columns with --map"
        )
    unknown = [file for file in files if not file.found]
    logs = log_kinds([file.path for file in unknown])
    passed_over = [*(f"{file.name}{log_named(log)}" for file, log in zip(unknown, logs, strict=True)), *lesser, *links]
    kinds = Counter(tuple(each.format.name for each in file.found) for file in known)
    for file in known:
        file.is_alone = kinds[tuple(each.format.name for each in file.found)] == 1
    return SourceNumbers(sorted(known, key=lambda file: (file.step, file.name)), passed_over, beside)


def _beside(names: Sequence[str]) -> dict[str, list[str]]:
    """A value that a trainer keeps beside its rows -> the names of such files."""
    files_by_value: dict[str, list[str]] = {}
    for name in sorted(names):
        if (known := neighbour(name)) is not None:
            files_by_value.setdefault(known.what, []).append(name)
    return files_by_value


def log_named(log: ScalarSource | None) -> str:
    """The words on a log of numbers, which is imported by itself; empty for any other file."""
    return "" if log is None else f" ({log.title}; import it by itself)"


def _kinds(name: str, options: Options) -> tuple[Candidate, ...]:
    if options.format is not None:
        return tuple(
            replace(known, part=_with_lines(known.part, options.lines)) for known in candidates(name, options.format)
        )
    if options.lines:
        return generic(name, options.lines)
    known, tables = candidates(name), generic(name, ())
    return (*known, *tables) if promised(name, known) else (*known, *tables, *renamed(name))


def _with_lines(part: FileKind, lines: tuple[ColumnMapping, ...]) -> FileKind:
    """The part, with lines of the user before those of its own."""
    named = {line.into for line in lines}
    return replace(part, columns=(*lines, *(line for line in part.columns if line.into not in named)))


def _without_copies(files: Sequence[File]) -> tuple[list[File], list[str]]:
    """The files, and the names of those of which files beside them hold all: files of the same step, or what was packed."""
    names = {file.name for file in files}
    held = {(candidate.format.name, file.step) for file in files for candidate in file.found}
    whole, copies = list[File](), list[str]()
    for file in files:
        is_packed = file.name != plain_name(file.name) in names and any(each.part.grows for each in file.found)
        if is_packed or any((candidate.format.part_of, file.step) in held for candidate in file.found):
            copies.append(f"{file.name} (files beside it hold all of it)")
        else:
            whole.append(file)
    return whole, copies


def _file(path: Path, name: str, size: int, matches: tuple[Candidate, ...]) -> File:
    """The file, with its step as a number inside states it, or else its name."""
    inside = next((each.format.step_inside for each in matches if each.format.step_inside), "")
    stated = _stated(path, inside) if inside else None
    named = (each.facts.get("step") for each in matches)
    step = stated if stated is not None else next((each for each in named if isinstance(each, int)), -1)
    return File(path, name, size, matches, step=step)


def _stated(path: Path, name: str) -> int | None:
    try:
        with open_regular(path.parent, path.name) as file:
            return stated_number(file.read(_HEAD), name)
    except OSError:  # it is told when the file is read
        return None


def _below(source: Path, links: list[str]) -> Iterator[tuple[Path, str, int]]:
    """(path, its name below the source, bytes) of regular files. Links and pipes are not followed: their names go to `links`."""
    if not source.is_dir():
        if not source.is_file():
            raise SourceError(f"{source}: there is no such file or folder; check the path")
        parts = source.absolute().parts[-3:]
        yield source, "/".join(parts), source.stat().st_size
        return
    count = 0
    for folder, folders, names in os.walk(source):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))):
            path = Path(folder, name)
            status = path.lstat()
            if not stat.S_ISREG(status.st_mode):
                links.append(f"{path.relative_to(source).as_posix()} (a link or a pipe; not followed)")
                continue
            count += 1
            if count > MOST_FILES:
                raise SourceError(f"{source} holds more than {MOST_FILES} files; give a folder of dumps")
            yield path, path.relative_to(source).as_posix(), status.st_size
