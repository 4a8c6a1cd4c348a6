"""Statistics segments: rows of one slice, with no more columns than asked for.

The newest segment of a live writer is announced, replaced whole, and committed. A reader that comes in between, or whose last
look at the log was before, finds a file of another digest: it believes it if the log announces this digest, and keeps the steps
that it knows to be committed. Logs of before there were announcements vouch for any file until they are closed.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.merging import KEYS

from ..commits.announcements import is_vouched_for
from ..commits.entries import Segment
from ..files.columns import conformed
from ..files.known_schemas import KnownSchemas
from ..files.parquet_files import Changed, Opened, ParquetFiles, read
from ..files.required_columns import SCHEMA, demand_segment

SliceColumns = tuple[str, tuple[str, ...]]
"""A slice, and which statistics of it."""


def segment_rows(files: ParquetFiles, segment: Segment, asked: Sequence[SliceColumns]) -> list[pa.Table]:
    """For each slice asked for its committed rows: KEYS and these columns. SourceError where the segment cannot be believed."""
    with opened_segment(files, segment) as (parquet, _):
        return _rows(parquet, segment, asked)


@contextmanager
def opened_segment(files: ParquetFiles, segment: Segment) -> Iterator[tuple[Opened, bool]]:
    """The segment, and whether its writer has replaced the one that was committed."""
    size = None if segment.sha256 is None else segment.bytes
    with ExitStack() as opened:
        is_newer = segment.sha256 is None
        try:
            parquet = opened.enter_context(files.opened(segment.path, size, segment.sha256))
        except Changed:
            if not is_vouched_for(files.root, segment.path, digest := files.digest(segment.path)):
                raise
            parquet, is_newer = opened.enter_context(files.opened(segment.path, None, digest)), True
        yield parquet, is_newer


def all_rows(files: ParquetFiles, segment: Segment) -> pl.DataFrame:
    """The committed rows of every slice, with all statistics. SourceError where the segment cannot be believed."""
    size = None if segment.sha256 is None else segment.bytes
    with files.opened(segment.path, size, segment.sha256) as parquet:
        demand_known_segment(parquet.metadata)
        frame = pl.from_arrow(conformed(read(parquet, SCHEMA.names, present=SCHEMA.names), SCHEMA))
    assert isinstance(frame, pl.DataFrame)
    return frame.filter(pl.col("step").is_in(list(segment.steps)))


def _rows(parquet: Opened, segment: Segment, asked: Sequence[SliceColumns]) -> list[pa.Table]:
    demand_known_segment(parquet.metadata)
    every = _wanted(tuple(name for _, columns in asked for name in columns))
    groups = sorted({group for name, _ in asked for group in groups_of_slice(parquet.metadata, name)})
    table = conformed(read(parquet, every.names, groups, present=SCHEMA.names), every)
    committed = pc.is_in(table["step"], pa.array(sorted(segment.steps), pa.int64()))
    return [
        table.select(_wanted(columns).names).filter(pc.and_(pc.equal(table["slice"], name), committed))
        for name, columns in asked
    ]


@lru_cache(maxsize=16)
def _wanted(columns: tuple[str, ...]) -> pa.Schema:
    return pa.schema([field for field in SCHEMA if field.name in {*KEYS, *columns}])


demand_known_segment = KnownSchemas(demand_segment).of
"""demand_segment, once for equal schemas: looking at 150 columns takes as long as reading some of them."""


def groups_of_slice(metadata: pq.FileMetaData, slice_name: str) -> list[int]:
    """Row groups that may hold the slice, by their own minimum and maximum; all where these are not on record."""
    names = [metadata.schema.column(index).path for index in range(metadata.num_columns)]
    place = names.index("slice")
    chunks = [metadata.row_group(index).column(place).statistics for index in range(metadata.num_row_groups)]
    return [index for index, found in enumerate(chunks) if _may_hold(found, slice_name)]


def _may_hold(found: pq.Statistics | None, value: str) -> bool:
    # Any: the stubs say None may be a bound, has_min_max says not here
    bounds: Any = found
    return found is None or not found.has_min_max or bounds.min <= value <= bounds.max
