"""Reads the files of a source, one after the other in the order of their steps, as samples of the Record."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Any

from ratioscope.errors import SourceError, UnsafeFile
from ratioscope.inside import open_regular

from .compressed import plain_name
from .containers import content
from .detection import TABLE, Candidate, candidates, fitting, generic, names_of
from .joining import joined_rows
from .restricted.budget import Budget, Limits
from .restricted.torch_files import stated_number
from .samples import Rejected, Sample, samples
from .scalars.sources import log_kind
from .table import Column, Format, Part

MOST_FILES = 1 << 20
_HEAD = 1 << 14


class _PassedOver(Exception):
    """A file of no format, and without columns that have the names of the Record; or a log of numbers, with what to do."""


@dataclass(frozen=True)
class Options:
    """The choices for reading a source."""

    format: Format | None = None
    """The format that the user named; None: it is detected for each file."""
    lines: tuple[Column, ...] = ()
    """Lines of a table that the user gave."""
    step: int | None = None
    """The step of rows that name none."""
    limits: Limits = Limits()
    keys: tuple[Column, ...] = ()
    """Further keys, by which rows are joined to those of another source."""


@dataclass
class File:
    """A file of the source, and what became of it."""

    path: Path
    name: str
    """Its path below the source."""
    size: int
    found: tuple[Candidate, ...]
    step: int = -1
    """The step of its rows as far as it is known before they are read: files of one step are read together."""
    read_as: Candidate | None = None
    rows: int = 0
    rejected: int = 0
    without_step: int = 0
    refused: str | None = None
    """Why nothing of it is imported."""


@dataclass
class Reading:
    """The numbers of what was read of a source so far."""

    files: list[File]
    passed_over: list[str] = field(default_factory=list)
    """Files that are of no kind that is read, below a folder."""
    only: dict[str, int] = field(default_factory=dict)
    """Side -> rows that the other side of their format lacks."""

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def opened(source: Path, options: Options) -> Reading:
    """The files below a folder, or the one file, in the order of their steps. SourceError where there is none."""
    paths = list(_below(source))
    if not paths:
        raise SourceError(f"{source}: there is no file here; give a dump, or a folder of dumps")
    files = [_file(path, name, size, _kinds(name, options)) for path, name, size in paths]
    known, lesser = _without_copies([file for file in files if file.found])
    if not known:
        named = ", ".join(file.name for file in files[:5])
        raise SourceError(
            f"{source}: no file is of a kind that is read ({named}); name the format with --from, or its columns with --map"
        )
    passed_over = [*(file.name for file in files if not file.found), *lesser]
    return Reading(sorted(known, key=lambda file: (file.step, file.name)), passed_over)


def _kinds(name: str, options: Options) -> tuple[Candidate, ...]:
    if options.format is not None:
        return tuple(
            replace(known, part=_with_lines(known.part, options.lines)) for known in candidates(name, options.format)
        )
    if options.lines:
        found = generic(name, options.lines)
        return () if found is None else (found,)
    known, other = candidates(name), generic(name, ())
    return known if other is None else (*known, other)


def _with_lines(part: Part, lines: tuple[Column, ...]) -> Part:
    """The part, with lines of the user before those of its own."""
    named = {line.into for line in lines}
    return replace(part, columns=(*lines, *(line for line in part.columns if line.into not in named)))


def _without_copies(files: Sequence[File]) -> tuple[list[File], list[str]]:
    """The files, and the names of those of which files of the same step hold all and more."""
    held = {(candidate.format.name, file.step) for file in files for candidate in file.found}
    whole, copies = list[File](), list[str]()
    for file in files:
        if any((candidate.format.part_of, file.step) in held for candidate in file.found):
            copies.append(f"{file.name} (files beside it hold all of it)")
        else:
            whole.append(file)
    return whole, copies


def _file(path: Path, name: str, size: int, found: tuple[Candidate, ...]) -> File:
    """The file, with its step as a number inside states it, or else its name."""
    inside = next((each.format.step_inside for each in found if each.format.step_inside), "")
    stated = _stated(path, inside) if inside else None
    named = (each.facts.get("step") for each in found)
    step = stated if stated is not None else next((each for each in named if isinstance(each, int)), -1)
    return File(path, name, size, found, step)


def _stated(path: Path, name: str) -> int | None:
    try:
        with open_regular(path.parent, path.name) as file:
            return stated_number(file.read(_HEAD), name)
    except OSError:  # it is told when the file is read
        return None


def _below(source: Path) -> Iterator[tuple[Path, str, int]]:
    """(path, its name below the source, bytes) of regular files; links below the source are not followed."""
    if not source.is_dir():
        if not source.is_file():
            raise SourceError(f"{source}: there is no such file or folder; check the path")
        parts = source.absolute().parts[-3:]
        yield source, "/".join(parts), source.stat().st_size
        return
    count = 0
    for folder, _, names in os.walk(source):
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            if stat.S_ISREG(status.st_mode) and not name.startswith("."):
                count += 1
                if count > MOST_FILES:
                    raise SourceError(f"{source} holds more than {MOST_FILES} files; give a folder of dumps")
                yield path, path.relative_to(source).as_posix(), status.st_size


def read(
    reading: Reading, options: Options, progress: Callable[[int], None] | None = None
) -> Iterator[Sample | Rejected]:
    """The samples of all files. Files of a format that is joined are read together where their step is the same."""
    done = 0
    for _, group in groupby(reading.files, lambda file: file.step):
        together = list(group)
        rows = (row for file in together for row in _of_file(reading, file, options, done, progress))
        if any(_join_on(file) for file in together):
            yield from _joined(reading, together, options, done, progress)
        else:
            yield from rows
        done += sum(file.size for file in together)


def _join_on(file: File) -> tuple[str, ...]:
    return next((candidate.format.join_on for candidate in file.found if candidate.format.join_on), ())


def _joined(
    reading: Reading, together: Sequence[File], options: Options, done: int, progress: Callable[[int], None] | None
) -> Iterator[Sample | Rejected]:
    held: dict[tuple[str, ...], list[Sample]] = {}
    for file in together:
        for row in _of_file(reading, file, options, done, progress):
            on = file.read_as.format.join_on if file.read_as is not None else ()
            if isinstance(row, Sample) and on:
                held.setdefault(tuple(str(row.keys.get(name)) for name in on), []).append(row)
            else:
                yield row
    sides = {file.name: file.read_as.part.side for file in together if file.read_as is not None}
    yield from joined_rows(held, sides, reading.only)


def _of_file(
    reading: Reading, file: File, options: Options, done: int, progress: Callable[[int], None] | None
) -> Iterator[Sample | Rejected]:
    """The rows of a file. A file that cannot be read, or only in part, is named as one rejected row."""
    try:
        for row in _rows(file, options, done, progress):
            file.rows += 1
            file.rejected += isinstance(row, Rejected)
            yield row
    except _PassedOver as reason:
        reading.passed_over.append(f"{file.name}{reason}")
    except (SourceError, OSError) as error:
        file.refused = f"{error}" if isinstance(error, UnsafeFile) else f"it cannot be read: {error}"
        yield Rejected(file.name, None, None, file.refused)


def _rows(
    file: File, options: Options, done: int, progress: Callable[[int], None] | None
) -> Iterator[Sample | Rejected]:
    refused: UnsafeFile | None = None
    for container in dict.fromkeys(candidate.part.container for candidate in file.found):
        found = tuple(candidate for candidate in file.found if candidate.part.container == container)
        with content(file.path, container, names_of(found), options.limits) as opened:
            try:
                file.read_as, left = fitting(opened, found, Budget(options.limits))
            except UnsafeFile as error:  # another container may fit: a database holds many a table
                refused = error
                continue
            if file.read_as is not None:
                yield from _with_steps(file, left, options, done, progress)
                return
    if refused is not None:
        raise refused
    if (log := log_kind(file.path)) is not None and not options.lines:
        raise _PassedOver(f" ({log.title}; import it by itself)")
    if all(candidate.format.name == TABLE for candidate in file.found) and not options.lines:
        raise _PassedOver
    wanted = ", ".join(dict.fromkeys(candidate.format.title for candidate in file.found))
    raise UnsafeFile(f"it lacks what its name promises ({wanted}); name its columns with --map")


def _with_steps(
    file: File, left: Any, options: Options, done: int, progress: Callable[[int], None] | None
) -> Iterator[Sample | Rejected]:
    assert file.read_as is not None
    part, facts = file.read_as.part, {**file.read_as.facts, "file": Path(plain_name(file.name)).stem}
    if part.refused:
        raise UnsafeFile(part.refused)
    part = replace(part, columns=(*part.columns, *options.keys))
    for number, row in enumerate(samples(part, left, file.name, facts)):
        if progress is not None and number % 64 == 0:
            progress(done + min(left.tell(), file.size))
        if isinstance(row, Sample) and row.step is None:
            row.step = options.step if options.step is not None else facts.get("step", 0)
            file.without_step += options.step is None and "step" not in facts
        yield row


def formats_read(files: Iterable[File]) -> dict[str, int]:
    """Title of a format -> files that were read as it."""
    found: dict[str, int] = {}
    for file in files:
        if file.read_as is not None and file.refused is None:
            found[file.read_as.format.title] = found.get(file.read_as.format.title, 0) + 1
    return found
