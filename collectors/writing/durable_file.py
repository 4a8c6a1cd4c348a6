"""Writes files of a run so that they appear whole or not at all, and survive a power cut. No link in the run is followed."""

import errno
import os
from collections.abc import Container, Iterable
from contextlib import suppress
from pathlib import Path, PurePath
from threading import get_ident

from ratioscope.inside import folder, holding

FOLDER_MODE = 0o700  # prompts and responses are nobody else's business
FILE_MODE = 0o600
_UNABLE = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
_NO_SYNC = (*_UNABLE, errno.EROFS, errno.EACCES, errno.EPERM)
_NO_LINKS = (errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK)  # some network and FUSE file systems
FileBytes = bytes | memoryview
"""The content of a file."""


def write_whole(root: Path, file: str | PurePath, data: FileBytes) -> None:
    """Writes the whole file, in the place of an earlier one of its name. After an OSError one of the two is there, whole."""
    with holding(root, file) as (at, name):
        hidden = _write_hidden(at, name, data)
        os.replace(hidden, name, src_dir_fd=at, dst_dir_fd=at)
        _sync_names(at)


def create_whole(root: Path, file: str | PurePath, data: FileBytes) -> bool:
    """Writes the whole file if its name is free. False, and nothing changes, if it is not."""
    with holding(root, file) as (at, name):
        if _bears(at, name):
            return False
        hidden = _write_hidden(at, name, data)
        try:
            os.link(hidden, name, src_dir_fd=at, dst_dir_fd=at)  # unlike a rename, a link refuses to replace
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.replace(hidden, name, src_dir_fd=at, dst_dir_fd=at)
        finally:
            _remove(at, hidden)
        _sync_names(at)
        return True


def make_folder(root: Path, path: str | PurePath, *, is_known: bool = False) -> None:
    """Makes the folder if it is not there, and its name durable.

    Its parent must exist, so that a deleted run does not come back as a fragment.

    is_known: the caller knows that the folder's name is durable. Otherwise a folder that exists is synced too: the process that
    made it may not have done so yet, and a power cut would take away what others put into it.
    """
    with holding(root, path) as (at, name):
        try:
            os.mkdir(name, FOLDER_MODE, dir_fd=at)
        except FileExistsError:
            if is_known:
                return
        _sync_names(at)


def make_folders(root: Path, outer: str | PurePath, names: Iterable[str]) -> None:
    """Makes these folders in the outer one, and all their names durable at once."""
    with folder(root, outer) as at:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, FOLDER_MODE, dir_fd=at)
        _sync_names(at)


def sync_folder(root: Path, path: str | PurePath) -> None:
    """Makes the names in the folder durable."""
    with folder(root, path) as at:
        _sync_names(at)


def make_root(root: Path) -> None:
    """Makes the folder of the run and all folders above it durable, as far as they may be synced."""
    root.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    for outer in root.resolve().parents:
        try:
            descriptor = os.open(outer, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:  # it belongs to somebody else, and is older than the run
            return
        try:
            _sync_names(descriptor, _NO_SYNC)
        finally:
            os.close(descriptor)


def append(root: Path, file: str | PurePath, data: bytes, end: int) -> int:
    """Appends the data to a file that one writer alone writes, and syncs it. Returns the new end of the file.

    end: the end after the previous call, 0 for the first. Bytes after `end`, left by a failed call, are cut off.
    """
    with holding(root, file) as (at, name):
        descriptor = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW, FILE_MODE, dir_fd=at)
        try:
            if os.fstat(descriptor).st_size > end:
                os.ftruncate(descriptor, end)
            end = os.fstat(descriptor).st_size
            try:
                _write_all(descriptor, data)
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, end)
                raise
        finally:
            os.close(descriptor)
        if end == 0:
            _sync_names(at)
        return end + len(data)


def is_taken(root: Path, file: str | PurePath) -> bool:
    """True if the name is taken. Raises if that cannot be found out.

    Path.exists would call a name free that is a loop of links or raises ValueError, and a file of that name would be replaced.
    """
    try:
        with holding(root, file) as (at, name):
            return _bears(at, name)
    except FileNotFoundError:
        return False


def delete(root: Path, files: Iterable[str | PurePath]) -> None:
    """Removes those of the files that exist, durably. Each folder is synced once, however many of its files are removed."""
    folders = set()
    for file in files:
        try:
            with holding(root, file) as (at, name):
                os.unlink(name, dir_fd=at)
        except FileNotFoundError:
            continue
        folders.add(PurePath(file).parent)
    for path in sorted(folders):
        sync_folder(root, path)


def move(root: Path, file: str | PurePath, target: str | PurePath) -> None:
    """Gives the file another name, durably."""
    with holding(root, file) as (at, name), holding(root, target) as (there, new):
        os.replace(name, new, src_dir_fd=at, dst_dir_fd=there)
        _sync_names(there)
        _sync_names(at)


def _bears(at: int, name: str) -> bool:
    try:
        os.lstat(name, dir_fd=at)
    except FileNotFoundError:
        return False
    return True


def _remove(at: int, name: str) -> None:
    try:
        os.unlink(name, dir_fd=at)
    except FileNotFoundError:
        return


def _write_hidden(at: int, name: str, data: FileBytes) -> str:
    """Writes the data under a hidden name, and returns it. A file of that name, left by an older process, is removed."""
    hidden = f".{name}.{os.getpid()}-{get_ident()}"
    try:
        _remove(at, hidden)
        descriptor = os.open(hidden, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, FILE_MODE, dir_fd=at)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except BaseException:
        _remove(at, hidden)
        raise
    return hidden


def _sync_names(descriptor: int, accepted: Container[int | None] = _UNABLE) -> None:
    """Makes the names in a folder durable, unless the file system says that it cannot sync a folder, as some on a network do."""
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in accepted:
            raise


def _write_all(descriptor: int, data: FileBytes) -> None:
    left = memoryview(data)
    while left:
        written = os.write(descriptor, left)
        if not written:  # a FUSE file system may say so, and asking again might never end
            raise OSError(errno.EIO, "the file system takes no byte more, and does not say why")
        left = left[written:]
