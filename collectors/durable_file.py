"""Files that appear whole or not at all, and are still there after a power cut."""

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from threading import get_ident

FOLDER_MODE = 0o700  # prompts and responses are nobody else's business
FILE_MODE = 0o600
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)  # some network and FUSE file systems


def write_whole(path: Path, data: bytes) -> None:
    """The file with all of its data, or an OSError and no file. What bore the name before is replaced."""
    _write_hidden(path, data)
    os.replace(_hidden(path), path)
    sync_folder(path.parent)


def create_whole(path: Path, data: bytes) -> bool:
    """The same, where no file bears the name yet; False, and nothing changed, where one does."""
    if path.exists():
        return False
    _write_hidden(path, data)
    try:
        os.link(_hidden(path), path)  # unlike a rename, a link refuses to replace
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        os.replace(_hidden(path), path)
    finally:
        _hidden(path).unlink(missing_ok=True)
    sync_folder(path.parent)
    return True


def make_folder(path: Path) -> None:
    """The folder; its parent must exist, so that a run that was deleted does not come back as a fragment."""
    try:
        path.mkdir(FOLDER_MODE)
    except FileExistsError:
        return
    sync_folder(path.parent)


def append(path: Path, data: bytes) -> None:
    """Appends all of the data and syncs; on failure the file ends where it ended before, if that can be done."""
    created = not path.exists()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, FILE_MODE)
    try:
        end = os.fstat(descriptor).st_size
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, end)
            raise
    finally:
        os.close(descriptor)
    if created:
        sync_folder(path.parent)


def is_taken(path: Path) -> bool:
    """Whether something bears the name. Raises where that cannot be told: to Path.exists a loop of links and any ValueError make
    a free name, and what bears it would be replaced."""
    try:
        os.lstat(path)
    except FileNotFoundError:
        return False
    return True


def delete(paths: Iterable[Path]) -> None:
    """Removes the files that are there, for good: each folder waits for the disk once, however many of its files go."""
    folders = set()
    for path in paths:
        try:
            os.unlink(path)
        except FileNotFoundError:
            continue
        folders.add(path.parent)
    for folder in sorted(folders):
        sync_folder(folder)


def move(path: Path, target: Path) -> None:
    """Gives the file another name, for good."""
    os.replace(path, target)
    sync_folder(target.parent)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Makes names in the folder durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}-{get_ident()}")


def _write_hidden(path: Path, data: bytes) -> None:
    hidden = _hidden(path)
    try:
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, FILE_MODE)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        hidden.unlink(missing_ok=True)
        raise


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
