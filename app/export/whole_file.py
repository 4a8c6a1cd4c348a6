"""Files that appear whole or not at all, under a name that nobody had, or that may be replaced.

A file is written beside its place under a hidden name with mode 0600, because it may hold prompts, and never through a link.
"""

import errno
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import gettempdir, mkstemp
from typing import IO

from ratioscope.errors import ConfigError
from ratioscope.layout import FOLDERS, RUN_FILE

_LEVELS_OF_A_RUN = 4
"""A file of a run lies at most so many folders below the folder with run.json."""
FILE = "a file in a folder"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def demand_free(paths: Sequence[Path], *, force: bool) -> None:
    """ConfigError if a name is taken (force: by something other than a file), or their folder is no place to write in."""
    for path in paths:
        if path.is_dir():
            raise ConfigError(f"-o {path} is a folder; wanted the name of a file in it")
        if os.path.lexists(path) and not force:
            raise ConfigError(f"{path} is there already; wanted a new file: try another name with -o, or --force")
    demand_place(paths[-1], FILE)


def demand_place(path: Path, wanted: str) -> None:
    """ConfigError if the place lies inside a run, or in a folder that is missing or may not be written.

    It is asked before the work whose result the place is for. wanted: `FILE`, or what else is to be written.
    """
    with place_error(path, wanted):
        if not path.parent.is_dir():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        if not os.access(path.parent, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    demand_outside_runs(path)


def demand_outside_runs(path: Path, option: str = "-o") -> None:
    """ConfigError if the place is one of a run's own: a file there could replace one of the run's. option: names the place.

    A run's own are its folder, and the sub-folders of its format. Others below it are the user's: the run may be a whole project.
    """
    above = path.parent.resolve()
    inner = above
    for folder in (above, *above.parents)[:_LEVELS_OF_A_RUN]:
        if (folder / RUN_FILE).exists() and (folder == above or inner.name in FOLDERS):
            raise ConfigError(f"{option} {path} lies inside the run {folder}; wanted a place outside of any run")
        inner = folder


@contextmanager
def whole_files(paths: Sequence[Path], *, force: bool) -> Iterator[list[IO[bytes]]]:
    """Files to write. They get these names, the last path first shown last, if nothing is raised; else nothing is left.

    force: names that are taken are replaced. A link is replaced itself, not the file that it leads to.
    """
    parts: list[Path] = []
    try:
        with ExitStack() as opened:
            with place_error(paths[-1], FILE):
                files = [_begun(path, parts, opened) for path in paths]
            with place_error(paths[-1], FILE, _FULL):  # other errors are of the run that is read meanwhile
                yield files
                _sync(files)
        demand_free(paths, force=force)  # again: writing took a while
        with place_error(paths[-1], FILE):
            for part, path in zip(parts, paths, strict=True):
                _named(part, path, force=force)
    finally:
        for part in parts:
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _sync(files: Iterable[IO[bytes]]) -> None:
    for file in files:
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def place_error(path: Path, wanted: str, only: Collection[int] = ()) -> Iterator[None]:
    """An error of the disk becomes a ConfigError: the place that could not be written, what was wanted, and another place.

    only: the numbers of the errors that do; all if it is empty.
    """
    try:
        yield
    except OSError as error:
        if only and error.errno not in only:
            raise
        raise ConfigError(
            f"-o {path}: {error.strerror}; wanted {wanted} that can be written and has room; try: -o {_elsewhere(path)}"
        ) from error


def _elsewhere(path: Path) -> Path:
    """The same name in this folder; in the folder for temporary files if that is the place, or may not be written."""
    here = Path(path.name)
    return here if here != path and os.access(".", os.W_OK) else Path(gettempdir()) / path.name


def _begun(path: Path, parts: list[Path], opened: ExitStack) -> IO[bytes]:
    descriptor, part = mkstemp(dir=path.parent, prefix=".", suffix=".part")
    parts.append(Path(part))
    return opened.enter_context(os.fdopen(descriptor, "wb"))


def _named(part: Path, path: Path, *, force: bool) -> None:
    """The finished file gets its name. Without force, a link cannot replace a file that appeared meanwhile."""
    if force:
        os.replace(part, path)
        return
    try:
        os.link(part, path)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        os.replace(part, path)
