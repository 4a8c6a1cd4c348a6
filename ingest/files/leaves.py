"""Leaf columns of Parquet files: a list of numbers is one leaf, a struct has several."""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow.parquet as pq

from .known_schemas import KnownSchemas

_WIDTHS = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
_LEVELS = 4
"""Bytes of the two levels (repetition, definition) of a value in a list, while it is decoded."""


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
