"""Statistics segments: rows of one slice, with no more columns than asked for.

The newest segment of a live writer is replaced whole before its commit line is appended. A reader that comes in between finds
more steps than are committed: it keeps those that are. A file of the committed size with another digest is damaged.
"""

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SchemaError
from ratioscope.metrics.arrow_columns import pc
from ratioscope.metrics.merge import KEYS
from ratioscope.metrics.numpy_engine import schema

from .columns import conformed, extra_columns
from .commits import Segment
from .parquet_files import CutShort, ParquetFiles, read

SCHEMA = schema()


def segment_rows(files: ParquetFiles, segment: Segment, slice_name: str, columns: Sequence[str]) -> pl.DataFrame:
    """The committed rows of one slice: KEYS and these columns. SourceError where the segment cannot be believed."""
    size = None if segment.sha256 is None else segment.bytes
    try:
        with files.opened(segment.path, size, segment.sha256) as parquet:
            return _rows(parquet, segment, slice_name, columns)
    except CutShort:
        with files.opened(segment.path, None, None) as parquet:
            return _rows(parquet, segment, slice_name, columns)


def all_rows(files: ParquetFiles, segment: Segment) -> pl.DataFrame:
    """The committed rows of every slice, with all statistics. SourceError where the segment cannot be believed."""
    size = None if segment.sha256 is None else segment.bytes
    with files.opened(segment.path, size, segment.sha256) as parquet:
        demand_segment(parquet.schema_arrow)
        frame = pl.from_arrow(conformed(read(parquet, SCHEMA.names), SCHEMA))
    assert isinstance(frame, pl.DataFrame)
    return frame.filter(pl.col("step").is_in(list(segment.steps)))


def demand_segment(found: pa.Schema) -> None:
    """SchemaError unless every statistic that metrics read is there: sums over steps would leave out what one lacks."""
    extra_columns(found, SCHEMA, KEYS)
    names = set(found.names)
    if missing := [name for name in SCHEMA.names if name not in names]:
        raise SchemaError(
            f"it lacks {len(missing)} statistics that are read here, such as {missing[0]!r}: another version wrote it"
        )


def _rows(parquet: pq.ParquetFile, segment: Segment, slice_name: str, columns: Sequence[str]) -> pl.DataFrame:
    demand_segment(parquet.schema_arrow)
    wanted = pa.schema([field for field in SCHEMA if field.name in {*KEYS, *columns}])
    table = conformed(read(parquet, wanted.names, groups_of_slice(parquet.metadata, slice_name)), wanted)
    kept = pc.and_(
        pc.equal(table["slice"], slice_name), pc.is_in(table["step"], pa.array(sorted(segment.steps), pa.int64()))
    )
    frame = pl.from_arrow(table.filter(kept))
    assert isinstance(frame, pl.DataFrame)
    return frame


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
