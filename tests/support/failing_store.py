"""A store that fails for a while: files that cannot be opened, or read to their end, and folders that cannot be listed."""

import errno
import io
import os
from collections.abc import Iterator
from pathlib import Path, PurePath

import pytest

from ratioscope import inside
from ratioscope.inside import FolderEntry

OPENERS = (
    "ratioscope.inside.open_regular",
    "ratioscope.ingest.files.parquet_files.open_regular",
    "ratioscope.ingest.commits.commit_log.open_regular",
)


class FailingStore:
    """Fails for paths that begin with one of the texts, until it is well.

    hidden: entries that a folder is listed without. number: of the error with which a file cannot be opened.
    """

    number = errno.ESTALE

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.unopened, self.unread, self.unlisted, self.hidden = set[str](), set[str](), set[str](), set[str]()
        opened, listed = inside.open_regular, inside.entries

        def open_regular(root: Path, file: str | PurePath) -> io.BufferedReader:
            if _begins(file, self.unopened):
                raise _failure(self.number)
            found = opened(root, file)
            return _BreaksOff(found) if _begins(file, self.unread) else found

        def entries(root: Path, path: str | PurePath, most: int | None = None) -> Iterator[FolderEntry]:
            if _begins(path, self.unlisted):
                raise _failure(errno.EIO)
            return (entry for entry in listed(root, path, most) if not _begins(f"{path}/{entry.name}", self.hidden))

        for name in OPENERS:
            monkeypatch.setattr(name, open_regular)
        monkeypatch.setattr("ratioscope.ingest.files.listing.entries", entries)

    def heal(self) -> None:
        for paths in (self.unopened, self.unread, self.unlisted, self.hidden):
            paths.clear()


class _BreaksOff(io.BufferedReader):
    """Gives the bytes of the file, and fails where it should say that there are no more."""

    def __init__(self, file: io.BufferedReader) -> None:
        super().__init__(io.FileIO(os.dup(file.fileno()), "rb"))
        file.close()

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if not data:
            raise _failure(errno.EIO)
        return data


def _begins(path: str | PurePath, with_one_of: set[str]) -> bool:
    return str(path).startswith(tuple(with_one_of))


def _failure(number: int) -> OSError:
    return OSError(number, os.strerror(number))
