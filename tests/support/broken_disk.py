"""A disk that refuses: files above a size, files of some folders."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ratioscope.collectors.writing import durable_file


@contextmanager
def files_of_at_most(nbytes: int) -> Iterator[None]:
    """While it lasts, the system refuses to let any file grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def broken_on(monkeypatch: pytest.MonkeyPatch, *folders: str) -> None:
    """From here on files of these folders cannot be written."""
    real = durable_file.write_whole

    def write(root: Path, file: Path, data: bytes) -> None:
        if any(folder in file.parts for folder in folders):
            raise OSError(28, "No space left on device")
        real(root, file, data)

    monkeypatch.setattr("ratioscope.collectors.writing.run_files.write_whole", write)
