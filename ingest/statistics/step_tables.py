"""Tables of statistics in the engine's schema: merged over steps, and marked where a budget kept rows by chance."""

from collections.abc import Iterator

import polars as pl
import pyarrow as pa

from ratioscope.metrics.engines.statistics_table import schema
from ratioscope.metrics.merging import KEYS, merge

_SAMPLED = b"ratioscope.sampled"


def folded(parts: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """One table: the parts merged over steps. Merges whenever the waiting parts have as many rows as the merged ones."""
    total, waiting, sampled = frame_of(schema().empty_table()), [], False
    for part in parts:
        sampled |= is_sampled(part)
        waiting.append(frame_of(part))
        if sum(map(len, waiting)) > len(total):
            total, waiting = merged(pl.concat([total, *waiting])), []
    total = merged(pl.concat([total, *waiting]))
    yield marked(total.to_arrow().cast(schema()), sampled)


def merged(frame: pl.DataFrame) -> pl.DataFrame:
    """The rows merged over attempts and steps, with the same columns."""
    over = merge(frame, tuple(key for key in KEYS if key not in ("attempt", "step")))
    absent = [name for name in frame.columns if name not in over.columns]
    return over.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in absent).select(frame.columns)


def frame_of(table: pa.Table) -> pl.DataFrame:
    """The table for polars, without its mark."""
    return pl.DataFrame(table.replace_schema_metadata())


def marked(table: pa.Table, sampled: bool) -> pa.Table:
    """The table, with a mark if a budget kept some of its rows by chance."""
    return table.replace_schema_metadata({_SAMPLED: b"1"} if sampled else None)


def is_sampled(table: pa.Table) -> bool:
    """True if the table has that mark."""
    return _SAMPLED in (table.schema.metadata or {})
