"""The columns that every token file, every statistics segment and every file of scalars must have."""

import pyarrow as pa

from ratioscope.errors import SchemaError
from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.metrics.merging import KEYS
from ratioscope.record import POLICIES, arrow_schema, scalar_schema

from .columns import extra_columns

REQUIRED = ("attempt", "step", "sequence_id")
"""Columns of every token file."""
SCHEMA = schema()
"""Columns of every statistics segment."""


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


def demand_segment(columns: pa.Schema) -> None:
    """SchemaError unless every statistic that metrics read is there: a sum over steps would silently omit a missing one."""
    extra_columns(columns, SCHEMA, KEYS)
    names = set(columns.names)
    if missing := [name for name in SCHEMA.names if name not in names]:
        raise SchemaError(
            f"it lacks {len(missing)} statistics that are read here, such as {missing[0]!r}: another version wrote it"
        )
