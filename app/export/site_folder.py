"""A folder of pages that appears whole or not at all, and replaces nothing but an older bundle."""

import os
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from tempfile import mkdtemp

from ratioscope.errors import ConfigError

from .whole_file import demand_place, place_error

MARK = "ratioscope-bundle.txt"
"""The file that lists the files of a bundle, one a line below its first line. It makes a folder one that may be replaced."""
FOLDER = "a folder in one"
HEAD = "The files of a bundle of ratioscope. A new bundle may replace this folder."


def demand_replaceable(folder: Path) -> None:
    """ConfigError if the name is taken by something other than an empty folder or a bundle, or lies inside a run."""
    demand_place(folder, FOLDER)
    if folder.is_symlink():
        raise ConfigError(f"-o {folder} is a link; wanted a folder: name the folder that it leads to")
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise ConfigError(f"-o {folder} is a file; wanted a folder, or a name that ends in .html or .zip")
    foreign = sorted(_files(folder) - _listed(folder))
    if foreign:
        raise ConfigError(
            f"-o {folder} has files that no bundle wrote, such as {foreign[0]}; wanted a new folder or one with a bundle alone:"
            f" try another name, or move the files"
        )


def write_folder(folder: Path, files: Iterable[tuple[str, str]]) -> int:
    """Writes the files and returns their bytes. Only their owner may read them, because they hold prompts and responses.

    files: name and content of each; they are taken one after the other, so that only one content need be in memory.
    """
    demand_replaceable(folder)
    sizes: dict[str, int] = {}
    with place_error(folder, FOLDER):
        part = Path(mkdtemp(dir=folder.parent, prefix=".", suffix=".part"))  # mode 0700
    try:
        for name, text in files:
            with place_error(folder, FOLDER):
                sizes[name] = _write(part / name, text)
        with place_error(folder, FOLDER):
            sizes[MARK] = _write(part / MARK, "\n".join((HEAD, *sorted(sizes), MARK, "")))
            demand_replaceable(folder)  # again: writing took a while
            _exchange(part, folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return sum(sizes.values())


def _exchange(part: Path, folder: Path) -> None:
    """The new folder gets the name. The old one is taken away under another name first, and put back if that fails."""
    if not folder.exists():
        os.rename(part, folder)
        return
    old = Path(mkdtemp(dir=folder.parent, prefix=".", suffix=".old"))
    os.rename(folder, old)
    try:
        os.rename(part, folder)
    except BaseException:
        with suppress(OSError):
            os.rename(old, folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def _write(path: Path, text: str) -> int:
    content = text.encode("utf-8")
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return len(content)


def _files(folder: Path) -> set[str]:
    """Everything in the folder that is no folder itself."""
    return {
        str((Path(root) / name).relative_to(folder))
        for root, folders, names in os.walk(folder)
        for name in (*names, *(each for each in folders if (Path(root) / each).is_symlink()))
    }


def _listed(folder: Path) -> set[str]:
    """The files that a bundle in this folder has written."""
    try:
        head, *names = (folder / MARK).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError, ValueError):
        return set()
    return set(names) if head == HEAD else set()
