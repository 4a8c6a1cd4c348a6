"""Rows of tables of an SQLite file of another program. Nothing that its schema may hold is carried out: views, virtual tables,
computed columns and functions are refused, and the file is opened as it lies there, without its journal."""

import io
import os
import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ratioscope.errors import UnsafeFile

_LONGEST_VALUE = 1 << 28
_MOST_LINKED = 1 << 22
_COMPUTED = (2, 3)
"""SQLite's marks of columns that are computed when they are read, and of those that were computed when they were written."""
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)


@dataclass(frozen=True)
class Linked:
    """The rows of another table that belong to a row."""

    table: str
    column: str = ""
    """The column of the other table that names the row; empty: all rows of the table belong to each row."""
    key: str = ""
    """The column of the row that it is equal to."""


def connected(file: io.BufferedReader) -> sqlite3.Connection:
    """A connection that reads this file and no other, and writes nothing."""
    if os.fstat(file.fileno()).st_nlink:
        return sqlite3.connect(f"file:/dev/fd/{file.fileno()}?mode=ro&immutable=1", uri=True)
    base = sqlite3.connect(":memory:")  # SQLite opens by name, and a file that was compressed has none
    file.seek(0)
    content = bytearray(file.read())
    content[18:20] = (
        b"\1\1"  # a write-ahead log, which the header may ask for, has no place in memory; `immutable` passes it over
    )
    base.deserialize(content)
    return base


def database_rows(file: io.BufferedReader, table: str, linked: Sequence[Linked] = ()) -> Iterator[dict[str, Any]]:
    """The rows of a table, in the order in which they lie there, each with its rows of linked tables under their tables' names.

    UnsafeFile where the file has no such table.
    """
    if file.read(16) != b"SQLite format 3\x00":
        raise UnsafeFile("it is no SQLite file")
    base = connected(file)
    try:
        base.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LONGEST_VALUE)
        base.execute("PRAGMA trusted_schema=OFF")
        base.text_factory = lambda data: data.decode("utf-8", "backslashreplace")
        for name in (table, *(link.table for link in linked)):
            _demand_table(base, name)
        base.set_authorizer(lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY)
        shared = {link.table: _rows(base, link.table) for link in linked if not link.column}
        for row in _each(base, table):
            own = {link.table: _rows(base, link.table, link.column, row[link.key]) for link in linked if link.column}
            yield {**row, **shared, **own}
    except (sqlite3.Error, UnicodeDecodeError) as error:  # names and messages of a damaged file are no UTF-8
        raise UnsafeFile(f"its database cannot be read ({str(error)[:80]})") from error
    finally:
        base.close()


def _each(base: sqlite3.Connection, table: str, column: str = "", value: Any = None) -> Iterator[dict[str, Any]]:
    chosen, values = (f' WHERE "{column}" = ?', (value,)) if column else ("", ())
    cursor = base.execute(f'SELECT * FROM "{table}"{chosen}', values)
    names = [described[0] for described in cursor.description]
    for row in cursor:
        yield dict(zip(names, row, strict=True))


def _rows(base: sqlite3.Connection, table: str, column: str = "", value: Any = None) -> list[dict[str, Any]]:
    values = list(islice(_each(base, table, column, value), _MOST_LINKED + 1))
    if len(values) > _MOST_LINKED:
        raise UnsafeFile(f"its table {table} has more than {_MOST_LINKED} rows that belong to one row")
    return values


def _demand_table(base: sqlite3.Connection, table: str) -> None:
    """UnsafeFile where the name is not that of a plain table."""
    query = "SELECT type, sql FROM sqlite_master WHERE name = ? AND type IN ('table', 'view')"
    row = base.execute(query, (table,)).fetchone()
    if row is None:
        raise UnsafeFile(f"its database has no table {table}")
    if row[0] != "table" or "virtual" in str(row[1]).lower().split("(")[0]:
        raise UnsafeFile(f"{table} of its database is no plain table")
    computed = [name for _, name, *_, hidden in base.execute(f'PRAGMA table_xinfo("{table}")') if hidden in _COMPUTED]
    if computed:  # SQLite asks no authorizer before it computes them
        raise UnsafeFile(
            f"its table {table} has columns that SQLite computes ({computed[0][:80]!r}); wanted stored values alone:"
            " copy it with CREATE TABLE … AS SELECT"
        )
