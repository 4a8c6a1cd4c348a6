"""JoinStore: the rows of one source, on disk by their key, until the rows of another source come. Memory does not grow.

A row is stored as JSON with its arrays behind it, in a database without a name: its disk is free again however the process ends.
"""

import json
import sqlite3
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ratioscope.errors import SourceError

from .samples import RecordedRow

_COMMIT_EVERY = 4096


class JoinStore:
    """Rows by key. Each is taken once. SourceError where the disk for temporary files has no room."""

    def __init__(self) -> None:
        self._base = sqlite3.connect("", isolation_level=None)  # a file that SQLite unlinks once it has opened it
        self._run("PRAGMA journal_mode=OFF")
        self._run("PRAGMA synchronous=OFF")
        self._run("CREATE TABLE rows (key TEXT PRIMARY KEY, row BLOB, taken INTEGER DEFAULT 0) WITHOUT ROWID")
        self._run("BEGIN")
        self._count = 0

    def put(self, key: str, sample: RecordedRow) -> RecordedRow | None:
        """Keeps a row. Returns the row that has this key already, if one has; the new one is not kept then."""
        try:
            self._run("INSERT INTO rows (key, row) VALUES (?, ?)", key, encoded(sample))
        except sqlite3.IntegrityError:
            return self.find(key)
        self._count += 1
        if self._count % _COMMIT_EVERY == 0:
            self._run("COMMIT")
            self._run("BEGIN")
        return None

    def find(self, key: str) -> RecordedRow | None:
        """The row of a key."""
        row = self._run("SELECT row FROM rows WHERE key = ?", key).fetchone()
        return None if row is None else decoded(row[0])

    def take(self, key: str) -> tuple[RecordedRow | None, bool]:
        """The row of a key, and whether it was taken before."""
        row = self._run("SELECT row, taken FROM rows WHERE key = ?", key).fetchone()
        if row is None:
            return None, False
        self._run("UPDATE rows SET taken = 1 WHERE key = ?", key)
        return decoded(row[0]), bool(row[1])

    def left(self) -> Iterator[tuple[str, RecordedRow]]:
        """The rows that nobody took."""
        for key, row in self._run("SELECT key, row FROM rows WHERE taken = 0"):
            yield key, decoded(row)

    def close(self) -> None:
        """Ends the database."""
        self._base.close()

    def _run(self, statement: str, *given: str | bytes) -> sqlite3.Cursor:
        try:
            return self._base.execute(statement, given)
        except sqlite3.OperationalError as error:
            raise SourceError(
                f"the rows of one side cannot be kept on disk until those of the other come: {error}; wanted room for them in"
                " the folder for temporary files, try: SQLITE_TMPDIR=FOLDER ratioscope import …"
            ) from error


def encoded(sample: RecordedRow, before: bytes = b"") -> bytes:
    """A row as bytes, without pickle. before: bytes before those of the row."""
    arrays = {name: value for name, value in sample.values.items() if isinstance(value, np.ndarray)}
    plain = {name: value for name, value in sample.values.items() if name not in arrays}
    head = {
        "step": sample.step, "keys": sample.keys, "file": sample.file, "row": sample.row, "values": plain,
        "arrays": [(name, array.dtype.str, len(array)) for name, array in arrays.items()],
    }  # fmt: skip
    text = json.dumps(head).encode()
    return b"".join(
        (before, struct.pack("<I", len(text)), text, *(np.ascontiguousarray(a).data for a in arrays.values()))
    )


def decoded(data: bytes | memoryview) -> RecordedRow:
    """The row that `encoded` made these bytes of."""
    (size,) = struct.unpack_from("<I", data)
    head: Mapping[str, Any] = json.loads(bytes(data[4 : 4 + size]))
    values, at = dict(head["values"]), 4 + size
    for name, kind, count in head["arrays"]:
        values[name] = np.frombuffer(data, kind, count, at)
        at += values[name].nbytes
    return RecordedRow(head["step"], values, dict(head["keys"]), head["file"], head["row"])
