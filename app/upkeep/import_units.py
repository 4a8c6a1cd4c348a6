"""Units of an import: what is kept of one that was interrupted. A unit is the work of one writer that has closed its log.

A file lists the units that are whole until the run is. An import that goes on reads its source again, compares the rows of these
units with what was written, and writes only the rows behind them.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ratioscope import layout
from ratioscope.errors import RatioscopeError
from ratioscope.ingest.importers.samples import RecordedRow
from ratioscope.version import __version__

TOKENS = 1 << 24
"""Tokens after which a unit ends at the next step: half a minute's work."""
UNITS = ".units.jsonl"
_OF_RUNS = (layout.TOKENS, layout.TOPK, layout.STATISTICS, layout.COMMITS)


class ImportChanged(RatioscopeError):
    """An import cannot go on: its source or its options are not those of the part that was written."""


@dataclass(frozen=True)
class Unit:
    """One writer's part of an import."""

    writer: str
    rows: int
    digest: str
    """Digest of its rows."""


class RowDigest:
    """The digest of rows, one after the other."""

    def __init__(self) -> None:
        self.rows, self._total = 0, hashlib.blake2b(digest_size=16)

    def add(self, rows: Iterable[RecordedRow]) -> None:
        """Takes the next rows, each with the place that it comes from."""
        for row in rows:
            self._add(row)

    def _add(self, row: RecordedRow) -> None:
        self.rows += 1
        arrays = {name: value for name, value in row.values.items() if isinstance(value, np.ndarray)}
        plain = [(name, value) for name, value in row.values.items() if name not in arrays]
        kinds = [(name, array.dtype.str, array.shape) for name, array in arrays.items()]
        self._total.update(repr((row.file, row.row, row.step, plain, kinds)).encode())
        for array in arrays.values():
            self._total.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())

    @property
    def text(self) -> str:
        return self._total.hexdigest()


class Units:
    """The list of the units of an import that are whole."""

    def __init__(self, staged: Path, options: Mapping[str, Any]) -> None:
        """options: those that the rows are written with. ImportChanged if the units have others."""
        self._staged, self._path = staged, staged / UNITS
        asked = json.loads(json.dumps({"version": __version__, "tokens": TOKENS, **options}))
        begun = next(_lines(staged), None)
        if begun not in (None, asked):
            raise ImportChanged("the import was begun with other options, or by another ratioscope")
        self.kept = _units(staged)
        if begun is None:
            self._say(asked)

    def check(self, rows: RowDigest) -> None:
        """Takes the next unit that is kept. ImportChanged if the source has other rows for it now."""
        kept = self.kept.pop(0)
        if (rows.rows, rows.text) != (kept.rows, kept.digest):
            raise ImportChanged("the source has changed since the import was interrupted")

    def add(self, rows: RowDigest) -> None:
        """Lists a unit whose writer has closed: the one whose log no unit names."""
        named = {unit.writer for unit in _units(self._staged)}
        (writer,) = {log.stem for log in (self._staged / layout.COMMITS).glob("*.jsonl")} - named
        self._say(asdict(Unit(writer, rows.rows, rows.text)))

    def _say(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())


def roll_back(staged: Path) -> int:
    """Removes what belongs to no whole unit. Returns the number of rows that are kept; if there are none, nothing is left."""
    units = _units(staged)
    if not units:
        for path in staged.iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
        return 0
    writers = {unit.writer for unit in units}
    for path in (path for folder in _OF_RUNS for path in (staged / folder).rglob("*") if not path.is_dir()):
        writer = path.stem if path.parent.name == layout.COMMITS else layout.writer_of(path.name)
        if writer not in writers:
            path.unlink()
    list_ = staged / UNITS
    os.truncate(list_, list_.read_bytes().rfind(b"\n") + 1)
    return sum(unit.rows for unit in units)


def _units(staged: Path) -> list[Unit]:
    return [Unit(**line) for line in list(_lines(staged))[1:]]


def _lines(staged: Path) -> Iterator[dict[str, Any]]:
    """The lines of the list; a last one that was not written to its end is none."""
    try:
        written = (staged / UNITS).read_bytes()
    except FileNotFoundError:
        return
    yield from map(json.loads, written[: written.rfind(b"\n") + 1].splitlines())
