"""The rows of a scalar log, decoded behind the wall."""

import json
from collections.abc import Iterator
from pathlib import Path

from ratioscope.errors import UnsafeFile
from ratioscope.kept_settings import kept

from ..confinement import FileLimits, allow
from ..samples import Rejected
from ..wall import REPEATS, Ended, apart, bounded, most_told
from .number_row import LogChoices, Logged
from .sources import ScalarSource

_ROW, _REJECTED, _NOTICED, _CONFIG = b"r", b"x", b"n", b"c"
"""Kinds of frames: a row, one that is rejected, what was noticed beside the rows, and settings, before the next row."""
MOST_OF_SETTINGS = 1 << 22
"""Bytes of settings that pass the wall, as many as run.json may have."""


def log_rows(source: ScalarSource, path: Path, choice: LogChoices, limits: FileLimits) -> Iterator[Logged | Rejected]:
    """The rows of a file. UnsafeFile names it, also where its decoder is ended. choice: what is noticed goes there."""
    size = path.stat().st_size
    try:
        for frame in apart(lambda: _told(source, path, size, choice), limits, size):
            kind, said = frame[:1], json.loads(bytes(frame[1:]))
            if kind == _ROW:
                yield Logged(path.name, *said)
            elif kind == _REJECTED:
                yield Rejected(path.name, *said)
            elif kind == _CONFIG:
                choice.config.update(said)
            else:
                choice.no_numbers.clear()
                choice.no_numbers.update(said["no_numbers"])
                choice.notes[:] = said["notes"]
    except (Ended, UnsafeFile) as error:
        raise UnsafeFile(f"{path}: {error}") from error


def _told(source: ScalarSource, path: Path, size: int, choice: LogChoices) -> Iterator[bytes]:
    sent, told = 0, 0
    allow(size)
    for number, row in enumerate(bounded(source.rows(path, choice), size)):
        if number % 16 == 0:
            allow(size)
        frame = _frame(row)
        for settings in _settings(choice, told):
            told += len(settings)
            yield settings
        if (sent := sent + len(frame)) > most_told(size):
            raise UnsafeFile(f"its rows take more than {sent} bytes, and it has {size}: {REPEATS}")
        yield frame
    yield from _settings(choice, told)
    yield _NOTICED + json.dumps({"no_numbers": choice.no_numbers, "notes": choice.notes}).encode()


def _settings(choice: LogChoices, told: int) -> Iterator[bytes]:
    """The settings that were read since the last frame, cut as a collector cuts them. told: bytes of those before."""
    if not choice.config:
        return
    settings = _CONFIG + json.dumps(kept(choice.config).settings).encode()
    choice.config.clear()
    if told + len(settings) <= MOST_OF_SETTINGS:
        yield settings
    elif (note := f"its settings take more than {MOST_OF_SETTINGS} bytes; later ones are left out") not in choice.notes:
        choice.notes.append(note)


def _frame(row: Logged | Rejected) -> bytes:
    if isinstance(row, Rejected):
        return _REJECTED + json.dumps([row.row, row.field, row.reason]).encode()
    return _ROW + json.dumps([row.row, row.step, row.values]).encode()
