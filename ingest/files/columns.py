"""Compares the columns of a file with the columns that are needed, and casts a table to them where that is possible.

The columns that every token file, every statistics segment and every file of scalars must have.
"""

from collections import Counter
from typing import Any

import pyarrow as pa

from ratioscope.errors import SchemaError
from ratioscope.metrics.definitions.registry import LATER
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.metrics.merging import KEYS
from ratioscope.record import POLICIES, arrow_schema, scalar_schema

ListType = Any
"""A pyarrow DataType. `Any`, because the stubs give value_type to lists only, and a test for lists does not narrow the type."""
_CLASSES = (
    (pa.types.is_boolean, "truth values"),
    (pa.types.is_integer, "whole numbers"),
    (pa.types.is_floating, "numbers"),
    (lambda found: pa.types.is_string(found) or pa.types.is_large_string(found), "texts"),
)

REQUIRED = ("attempt", "step", "sequence_id")
"""Columns of every token file."""
SCHEMA = schema()
"""Columns of every statistics segment."""


def extra_columns(schema: pa.Schema, expected: pa.Schema, required: tuple[str, ...]) -> tuple[str, ...]:
    """Columns of `found` that are not in `wanted`. SchemaError if a required column is missing, doubled, or of another kind."""
    names = schema.names
    if missing := [name for name in required if name not in names]:
        raise SchemaError(
            f"it has no column {missing[0]!r}; it has {_shown(names)}, wanted {_shown(required)}."
            " A file of another program is no part of a run: move it out of the folder"
        )
    types = {field.name: field.type for field in expected}
    if doubled := [name for name, count in Counter(names).items() if count > 1 and name in types]:
        raise SchemaError(f"it has {names.count(doubled[0])} columns named {doubled[0]!r}; wanted one")
    for field in schema:
        if field.name in types and not _reads_as(field.type, types[field.name]):
            raise SchemaError(
                f"its column {field.name!r} holds {_stored(field.type)}; wanted {_described(types[field.name])}"
            )
    return tuple(name for name in names if name not in types)


def conformed(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the wanted columns: cast where the width differs, null where a column is absent."""
    if table.schema.equals(schema):
        return table.replace_schema_metadata(schema.metadata)
    present = dict(zip(table.column_names, table.columns, strict=True))
    columns = [
        _cast(present[field.name], field.type) if field.name in present else pa.nulls(len(table), field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _cast(column: ArrowColumn, kind: pa.DataType) -> ArrowColumn:
    return column if column.type == kind else pc.cast(column, kind)


def _reads_as(stored: ListType, expected: ListType) -> bool:
    if pa.types.is_list(expected):
        is_list = pa.types.is_list(stored) or pa.types.is_large_list(stored)
        return is_list and _reads_as(stored.value_type, expected.value_type)
    if pa.types.is_dictionary(stored):
        return _reads_as(stored.value_type, expected)
    return any(test(stored) and test(expected) for test, _ in _CLASSES)


def _stored(stored: ListType) -> str:
    """The type as the file stores it. Texts are read as dictionaries, see parquet_files."""
    return f"{stored.value_type if pa.types.is_dictionary(stored) else stored}"


def _described(expected: ListType) -> str:
    if pa.types.is_list(expected):
        return f"lists of {_described(expected.value_type)}"
    return next(words for test, words in _CLASSES if test(expected))


def _shown(names: tuple[str, ...] | list[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:12])
    return f"[{shown}{', ...' if len(names) > 12 else ''}]"


def demand_scalars(columns: pa.Schema) -> None:
    """SchemaError unless the columns can hold scalars."""
    extra_columns(columns, scalar_schema(), ("attempt", "step", "name", "value"))


def demand_columns(columns: pa.Schema) -> tuple[str, ...]:
    """Columns that no Record has. SchemaError unless the others can hold Records."""
    extra = extra_columns(columns, arrow_schema(), REQUIRED)
    if not any(f"{policy}_logprobs" in columns.names for policy in POLICIES):
        raise SchemaError(
            f"it has no log-probs of any policy; wanted one of {', '.join(f'{p}_logprobs' for p in POLICIES)}"
        )
    return extra


def demand_segment(columns: pa.Schema) -> tuple[str, ...]:
    """The columns of SCHEMA that it has. SchemaError unless every statistic that metrics read is there, but for those of LATER:
    a sum over steps would silently omit a missing one."""
    extra_columns(columns, SCHEMA, KEYS)
    names = set(columns.names)
    if missing := [name for name in SCHEMA.names if name not in names and name not in LATER]:
        raise SchemaError(
            f"it lacks {len(missing)} statistics that are read here, such as {missing[0]!r}: another version wrote it"
        )
    return tuple(name for name in SCHEMA.names if name in names)
