"""Reads the rows of one slice from a statistics segment, with no more columns than needed.

A live writer announces its newest segment, replaces the file, and then commits it. A reader in between finds a file with
another digest than the commit's. It trusts the file if the log announces its digest, and uses only the committed steps. Logs of
an old ratioscope have no announcements and vouch for any file until they are closed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.statistics_table import SHAPE_FIELDS, sources, with_shapes
from ratioscope.metrics.merging import KEYS

from ..commits.announcements import is_vouched_for
from ..commits.entries import Segment
from ..files.columns import conformed
from ..files.known_schemas import KnownSchemas
from ..files.leaves import leaves
from ..files.parquet_files import FileChanged, Opened, ParquetFiles, read
from ..files.required_columns import SCHEMA, demand_segment

SliceColumns = tuple[tuple[str, ...], tuple[str, ...]]
"""(slices, names of the statistics to read). The rows of several slices are one table."""


def segment_rows(files: ParquetFiles, segment: Segment, asked: Sequence[SliceColumns]) -> list[pa.Table]:
    """For each of `asked` its committed rows, with KEYS and its columns. SourceError where the file is not as committed."""
    with opened_segment(files, segment) as (parquet, _):
        return _rows(parquet, segment, asked)


@contextmanager
def opened_segment(files: ParquetFiles, segment: Segment) -> Iterator[tuple[Opened, bool]]:
    """The opened segment, and whether its writer has replaced it since the commit."""
    size = None if segment.sha256 is None else segment.bytes
    with ExitStack() as opened:
        is_newer = segment.sha256 is None
        try:
            parquet = opened.enter_context(files.opened(segment.path, size, segment.sha256))
        except FileChanged:
            if not is_vouched_for(files.root, segment.path, digest := files.digest(segment.path)):
                raise
            parquet, is_newer = opened.enter_context(files.opened(segment.path, None, digest)), True
        yield parquet, is_newer


def all_rows(files: ParquetFiles, segment: Segment) -> pl.DataFrame:
    """The committed rows of every slice, with all statistics. SourceError where the file is not as committed."""
    size = None if segment.sha256 is None else segment.bytes
    with files.opened(segment.path, size, segment.sha256) as parquet:
        demand_known_segment(parquet.metadata)
        frame = pl.DataFrame(conformed(read(parquet, SCHEMA.names, present=SCHEMA.names), SCHEMA))
    return frame.filter(pl.col("step").is_in(list(segment.steps)))


def _rows(parquet: Opened, segment: Segment, asked: Sequence[SliceColumns]) -> list[pa.Table]:
    demand_known_segment(parquet.metadata)
    every = wanted(tuple(name for _, columns in asked for name in columns))
    groups = sorted(
        {group for names, _ in asked for name in names for group in groups_of_slice(parquet.metadata, name)}
    )
    table = read(parquet, sources(every.names, SCHEMA.names), groups, present=SCHEMA.names)
    return [committed_rows(table, slice_columns, segment) for slice_columns in asked]


def committed_rows(table: pa.Table, asked: SliceColumns, segment: Segment) -> pa.Table:
    """Those rows that are of the slices and of committed steps, with KEYS and the columns.

    They are cast after they are chosen: a segment has fifty times as many rows as its slice `all`.
    """
    slices, columns = asked
    schema = wanted(columns)
    committed = pc.is_in(pc.cast(table["step"], pa.int64()), _set_of(sorted(segment.steps), pa.int64()))
    chosen = pc.and_(pc.is_in(table["slice"], _set_of(slices, pa.string())), committed)
    rows = table.select(sources(schema.names, table.column_names))
    # a file of overall statistics has no other rows, and a table without a part of its rows is a copy
    own = rows if pc.sum(chosen).as_py() == len(rows) else rows.filter(chosen)
    return conformed(with_shapes(own, schema.names), schema)


def _set_of(values: Sequence[int] | Sequence[str], kind: pa.DataType) -> ArrowColumn:
    """The values in Arrow. They go through polars: Arrow imports pandas for the first value of Python that it is given, which
    takes 0.4 s of a processor."""
    return pc.cast(pl.Series(values).to_arrow(), kind)


@lru_cache(maxsize=16)
def wanted(columns: tuple[str, ...]) -> pa.Schema:
    """The schema of KEYS and these statistics and shapes."""
    return pa.schema([field for field in (*SCHEMA, *SHAPE_FIELDS) if field.name in {*KEYS, *columns}])


demand_known_segment = KnownSchemas(lambda schema: demand_segment(schema.to_arrow_schema())).of
"""demand_segment, run once for equal schemas: checking 150 columns takes as long as reading some of them."""


def groups_of_slice(metadata: pq.FileMetaData, slice_name: str) -> list[int]:
    """Row groups that may hold the slice, by their minimum and maximum in the footer; all groups where it has none."""
    place = next(place for place, leaf in enumerate(leaves(metadata)) if leaf.path == "slice")
    chunks = [metadata.row_group(index).column(place).statistics for index in range(metadata.num_row_groups)]
    return [index for index, statistics in enumerate(chunks) if _may_hold(statistics, slice_name)]


def _may_hold(statistics: pq.Statistics | None, value: str) -> bool:
    # Any: the stubs allow None as a bound; has_min_max rules it out here
    bounds: Any = statistics
    return statistics is None or not statistics.has_min_max or bounds.min <= value <= bounds.max
