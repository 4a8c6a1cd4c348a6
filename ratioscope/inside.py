"""Access to files below a folder that may be a stranger's, folder by folder through descriptors: no link leads out of it.

The folder itself may be a link, because its user named it. Below it no link is followed, nothing but a regular file is
opened, and nothing blocks: a pipe, a socket or a device is refused as a link is. Readers, writers and verbs that change a run
go through here. They name a file relative to the descriptor of its folder, so that a link put there meanwhile cannot redirect
them. A hard link needs no care: names are replaced, moved and removed, and the one file that is written in place is a
writer's own log, whose name nobody can guess.
"""

import errno
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePath, PurePosixPath

from .errors import SourceError, Unread

_KINDS = (
    (stat.S_ISLNK, "a symbolic link; links inside a run are not followed"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISDIR, "a folder"),
)
# Opening a FIFO for reading waits for a writer unless asked not to.
_SAFELY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_SMALL, _LEAST_HELD = 1 << 24, 64
"""A file above so many bytes holds at least a 64th of them on disk: a file system that compresses makes a tenth of a log."""
_IN_THE_WAY = (errno.ELOOP, errno.ENOTDIR, errno.EMLINK, errno.ENXIO, errno.ENODEV)


class Astray(SourceError, OSError):
    """A path below a folder that leads out of it, or bears something else than was wanted. An OSError too, because to a writer it
    is one more reason why something cannot be written."""


class Hollow(Astray, Unread):
    """A file that is nearly all holes. ZFS and Lustre say so, too, of a file that was written some seconds ago."""


@dataclass(frozen=True, order=True)
class FolderEntry:
    """A name in a folder, and the type bits of its mode (0: it was removed since)."""

    name: str
    mode: int

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


def parts(path: str | PurePath) -> tuple[str, ...]:
    """The names that lead to the path from its root; Astray where it leads elsewhere."""
    found = PurePosixPath(path)
    if not found.parts or ".." in found.parts or found.is_absolute() or "\0" in str(path):
        raise Astray(f"its path {str(path)[:200]!r} leads out of the run; wanted a path below it")
    return found.parts


@contextmanager
def folder(root: Path, path: str | PurePath = "") -> Iterator[int]:
    """The descriptor of a folder below the root, or of the root. Astray where something else is in the way; FileNotFoundError."""
    descriptor = os.open(root, _FOLDER)
    try:
        for name in parts(path) if str(path) not in ("", ".") else ():
            outer, descriptor = descriptor, _entered(descriptor, name)
            os.close(outer)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def holding(root: Path, path: str | PurePath) -> Iterator[tuple[int, str]]:
    """The descriptor of the folder that holds the path, and its name there."""
    *outer, name = parts(path)
    with folder(root, "/".join(outer)) as descriptor:
        yield descriptor, name


def open_regular(root: Path, file: str | PurePath) -> io.BufferedReader:
    """`root/file` opened for reading. Astray for a link, pipe, device or folder in the way; FileNotFoundError. Never blocks."""
    with holding(root, file) as (at, name):
        try:
            descriptor = os.open(name, _SAFELY, dir_fd=at)
        except OSError as error:
            if error.errno in _IN_THE_WAY:
                _demand_file(os.stat(name, dir_fd=at, follow_symlinks=False).st_mode)
            raise
    try:
        _demand_whole(os.fstat(descriptor))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def content(root: Path, file: str | PurePath, most: int) -> bytes:
    """All that a regular file holds; Astray where that is more than `most` bytes."""
    with open_regular(root, file) as opened:
        data = opened.read(most + 1)
    if len(data) > most:
        raise Astray(f"it is larger than {most} bytes, the most that is read of it")
    return data


def status(root: Path, path: str | PurePath) -> os.stat_result:
    """The status of the file, folder or link of this name; links are not followed. FileNotFoundError if it is missing;
    Astray."""
    with holding(root, path) as (at, name):
        return os.stat(name, dir_fd=at, follow_symlinks=False)


def is_file(root: Path, path: str | PurePath) -> bool:
    """True if the name is a regular file's, and no link leads there."""
    try:
        return stat.S_ISREG(status(root, path).st_mode)
    except OSError:
        return False


def entries(root: Path, path: str | PurePath, most: int | None = None) -> Iterator[FolderEntry]:
    """The entries of a folder, in no order. most: number of names that are looked at."""
    with folder(root, path) as descriptor:
        yield from _listed(descriptor, most)


def entries_at(outer: int, name: str, most: int | None = None) -> Iterator[FolderEntry]:
    """The same for a folder directly below that of this descriptor: a third of the calls, which a far store answers late."""
    descriptor = _entered(outer, name)
    try:
        yield from _listed(descriptor, most)
    finally:
        os.close(descriptor)


def kind(mode: int) -> str:
    """The kind of path that a stat mode stands for, in words."""
    return next((words for test, words in _KINDS if test(mode)), "not a regular file")


def _listed(descriptor: int, most: int | None) -> Iterator[FolderEntry]:
    with os.scandir(descriptor) as found:
        for place, entry in enumerate(found):
            if place == most:
                return
            yield FolderEntry(entry.name, _type(entry))


def _entered(outer: int, name: str) -> int:
    try:
        return os.open(name, _FOLDER | os.O_NOFOLLOW, dir_fd=outer)
    except OSError as error:
        if error.errno in _IN_THE_WAY:
            mode = os.stat(name, dir_fd=outer, follow_symlinks=False).st_mode
            raise Astray(f"{name} is {kind(mode)}; wanted a folder: put the folder itself there") from error
        raise


def _demand_whole(status: os.stat_result) -> None:
    """Astray for what is no file; Hollow for what is nearly all holes: some KB on disk that read as terabytes of zeros."""
    _demand_file(status.st_mode)
    held = getattr(status, "st_blocks", 0) * 512  # 0 where the file system does not say
    if 0 < held * _LEAST_HELD < status.st_size - _SMALL:
        raise Hollow(
            f"it is said to have {status.st_size} bytes, and {held} are there: the rest are holes; copy it again"
        )


def _demand_file(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise Astray(f"it is {kind(mode)}, not a regular file")


def _type(entry: "os.DirEntry[str]") -> int:
    """Type bits, mostly without asking the disk."""
    if entry.is_file(follow_symlinks=False):
        return stat.S_IFREG
    if entry.is_dir(follow_symlinks=False):
        return stat.S_IFDIR
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return 0
