"""Opening a file inside a folder that may be hostile: no link is followed, nothing but a regular file is opened."""

import io
import os
import stat
from pathlib import Path, PurePosixPath

from ratioscope.errors import SourceError

_KINDS = (
    (stat.S_ISLNK, "a symbolic link; links inside a run are not followed"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISDIR, "a folder"),
)
# Opening a FIFO for reading waits for a writer unless asked not to. Names that this platform lacks count as 0.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))


def open_regular(root: Path, file: str) -> io.BufferedReader:
    """`root/file` opened for reading. Raises SourceError for a link, pipe, device or folder anywhere on the way below
    `root`, and FileNotFoundError. Never blocks, never leaves `root`.
    """
    parts = PurePosixPath(file).parts
    if not parts or ".." in parts or PurePosixPath(file).is_absolute():
        raise SourceError(f"its path {file!r} leads out of the run")
    path = root
    for part in parts[:-1]:
        path = path / part
        _demand(os.lstat(path).st_mode, stat.S_ISDIR)
    path = path / parts[-1]
    _demand(os.lstat(path).st_mode, stat.S_ISREG)
    descriptor = os.open(path, _FLAGS)
    try:
        _demand(os.fstat(descriptor).st_mode, stat.S_ISREG)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def kind(mode: int) -> str:
    """What a stat mode says the path is, in words."""
    return next((words for test, words in _KINDS if test(mode)), "not a regular file")


def _demand(mode: int, test: object) -> None:
    if not callable(test) or not test(mode):
        raise SourceError(f"it is {kind(mode)}, not a {'folder' if test is stat.S_ISDIR else 'regular file'}")
