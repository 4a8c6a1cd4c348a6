"""Footers of Parquet files: bounds on what they claim, and the columns that they describe.

Leaf columns of Parquet files: a list of numbers is one leaf, a struct has several.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import pyarrow.parquet as pq

from ratioscope.errors import SourceError

_MOST = 8
"""Schemas remembered at most. The writers of a run may have several versions."""
Result = TypeVar("Result")


@dataclass
class KnownSchemas(Generic[Result]):
    """Calls `check` once for each Parquet schema: a run has many files, and those of one writer have equal schemas.

    An error that it raises is not remembered.
    """

    check: Callable[[pq.ParquetSchema], Result]
    _results: list[tuple[bytes, pq.ParquetSchema, Result]] = field(default_factory=list)
    """(serialised Arrow schema, Parquet schema, what `check` returned)."""

    def of(self, metadata: pq.FileMetaData) -> Result:
        """The result of `check` for the file's schema."""
        serialised = (metadata.metadata or {}).get(b"ARROW:schema", b"")
        for other, schema, result in list(self._results):  # a copy: other threads may append
            if serialised == other and metadata.schema.equals(schema):
                return result
        result = self.check(metadata.schema)
        if len(self._results) >= _MOST:
            self._results.clear()
        self._results.append((serialised, metadata.schema, result))
        return result


MOST_ROWS = 1 << 22
MOST_COLUMNS = 4096
MOST_GROUPS = 1 << 12
MOST_VALUES = 1 << 28
"""Values in one column of one file at most: a gigabyte of log-probs. A file of 87 KB can claim a billion rows by run lengths."""

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_LEVELS = 4
"""Bytes of the two levels (repetition, definition) of a value in a list, while it is decoded."""


def demand_reasonable(metadata: pq.FileMetaData) -> None:
    """SourceError for a footer that claims more rows, columns or values than any step of a training run has."""
    if metadata.num_rows > MOST_ROWS:
        raise SourceError(f"it claims {metadata.num_rows} rows; at most {MOST_ROWS} are read from one file")
    if metadata.num_columns > MOST_COLUMNS:
        raise SourceError(f"it claims {metadata.num_columns} columns; at most {MOST_COLUMNS} are read from one file")
    if metadata.num_row_groups > MOST_GROUPS:
        raise SourceError(
            f"it claims {metadata.num_row_groups} row groups; at most {MOST_GROUPS} are read from one file"
        )
    columns = range(metadata.num_columns)
    totals, spare = [0] * len(columns), [0] * len(columns)
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        rows = group.num_rows
        for column in columns:
            values = group.column(column).num_values
            totals[column] += values
            spare[column] = min(spare[column], values - rows)
    for column, (values, fewest) in enumerate(zip(totals, spare, strict=True)):
        if values > MOST_VALUES:
            raise SourceError(f"it claims {values} values in one column; at most {MOST_VALUES} are read from one file")
        if fewest < 0:  # a row without a value counts as one, in a list too: polars panics where rows have none
            path = metadata.schema.column(column).path
            raise SourceError(f"its column {path!r} has {-fewest} values fewer than its rows")


def recorded_columns(metadata: pq.FileMetaData) -> dict[str, int]:
    """Column -> the rows with a value in it, by the footer; columns without any are left out.

    A column without null counts is taken to have a value in each row. A list with a null among its values counts as null.
    """
    rows: dict[str, int] = {}
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        own: dict[str, int] = {}
        for chunk in map(group.column, range(metadata.num_columns)):
            nulls = 0 if chunk.statistics is None else chunk.statistics.null_count or 0
            if chunk.statistics is None or nulls < chunk.num_values:
                name = chunk.path_in_schema.split(".")[0]
                own[name] = max(own.get(name, 1), group.num_rows - nulls)
        rows = {name: rows.get(name, 0) + own.get(name, 0) for name in rows.keys() | own.keys()}
    return rows


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column."""

    path: str
    """Its names from the column down, with dots."""
    column: str
    """The column that it is a part of."""
    width: int
    """Bytes of one decoded value; for a text, bytes of its dictionary index."""
    is_text: bool
    """True if its values are strings."""


def _leaf(column: pq.ColumnSchema) -> Leaf:
    kind = column.physical_type
    width = (_WIDTHS.get(kind) or max(1, column.length or 1)) + (_LEVELS if column.max_repetition_level else 0)
    return Leaf(column.path, column.path.partition(".")[0], width, kind == "BYTE_ARRAY")


def _all(schema: pq.ParquetSchema) -> tuple[Leaf, ...]:
    return tuple(_leaf(schema.column(place)) for place in range(len(schema)))


leaves = KnownSchemas(_all).of
"""The leaf columns of a file, in order."""


def leaves_of(metadata: pq.FileMetaData, columns: Collection[str]) -> frozenset[str]:
    """Paths of the leaf columns of these columns."""
    wanted = frozenset(columns)
    return frozenset(leaf.path for leaf in leaves(metadata) if leaf.column in wanted)


def text_leaves(metadata: pq.FileMetaData) -> list[str]:
    """Paths of the columns that hold texts, inside lists too."""
    return [leaf.path for leaf in leaves(metadata) if leaf.is_text]
