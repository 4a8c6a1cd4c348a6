"""Reads the rows of one slice from a statistics segment, with no more columns than needed.

A live writer announces its newest segment, replaces the file, and then commits it. A reader in between finds a file with
another digest than the commit's. It trusts the file if the log announces its digest, and uses only the committed steps. Logs of
an old ratioscope have no announcements and vouch for any file until they are closed.
The rows of slice `all` of several segments, read from the one file that repeats them.

A file of eight segments is decoded in less time than one segment. Whoever reads a run by blocks of steps asks for a few segments
of each file at a time; the others' rows are held until they are asked for, up to a bound.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from ratioscope.errors import SourceError
from ratioscope.layout import SEGMENT
from ratioscope.metrics.engines.arrow_columns import ArrowColumn, pc
from ratioscope.metrics.engines.statistics_table import SHAPE_FIELDS, sources, with_shapes
from ratioscope.metrics.merging import KEYS

from ..commits.announcements import is_vouched_for
from ..commits.entries import OverallFile, Segment
from ..files.columns import SCHEMA, conformed, demand_segment
from ..files.footers import KnownSchemas, leaves
from ..files.parquet_files import FileChanged, Opened, ParquetFiles, read

SliceColumns = tuple[tuple[str, ...], tuple[str, ...]]
"""(slices, names of the statistics to read). The rows of several slices are one table."""

MOST_HELD = 1 << 28
"""Bytes of rows that are held for later: those of 60 ranks, which have about 4 MB each. With half of it, 64 ranks take 1.6 times
as long, because the files of the others are read once for each block of steps."""


def segment_rows(files: ParquetFiles, segment: Segment, asked: Sequence[SliceColumns]) -> list[pa.Table]:
    """For each of `asked` its committed rows, with KEYS and its columns. SourceError where the file is not as committed."""
    with opened_segment(files, segment) as (parquet, _):
        present = demand_known_segment(parquet.metadata)
        every = wanted(tuple(name for _, columns in asked for name in columns))
        groups = sorted(
            {group for names, _ in asked for name in names for group in groups_of_slice(parquet.metadata, name)}
        )
        table = read(parquet, sources(every.names, present), groups, present=present)
        return [committed_rows(table, slice_columns, segment) for slice_columns in asked]


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
        present = demand_known_segment(parquet.metadata)
        frame = pl.DataFrame(conformed(read(parquet, SCHEMA.names, present=present), SCHEMA))
    return frame.filter(pl.col("step").is_in(list(segment.steps)))


def committed_rows(table: pa.Table, asked: SliceColumns, segment: Segment) -> pa.Table:
    """Those rows that are of the slices and of committed steps, with KEYS and the columns.

    They are cast after they are chosen: a segment has fifty times as many rows as its slice `all`.
    """
    slices, columns = asked
    schema = wanted(columns)
    committed = pc.is_in(pc.cast(table["step"], pa.int64()), _set_of(sorted(segment.steps), pa.int64()))
    chosen = pc.and_(pc.is_in(table["slice"], _set_of(slices, pa.string())), committed)
    present = {*table.column_names}
    rows = table.select([name for name in sources(schema.names, present) if name in present])
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


_SegmentKey = tuple[str, str]
"""(path, digest) of a segment."""
_FileColumns = tuple[OverallFile, tuple[str, ...]]
"""(file, columns)."""


@dataclass
class OverallRows:
    """Reads files of overall statistics. Several threads may read different files at a time."""

    files: ParquetFiles
    _held: dict[_FileColumns, dict[_SegmentKey, pa.Table]] = field(default_factory=dict)
    """File and columns -> the rows of each segment that are not handed out yet."""
    _bytes: dict[_FileColumns, int] = field(default_factory=dict)
    """Bytes of the rows that are held of each file."""

    def of(self, file: OverallFile, segments: Sequence[Segment], columns: tuple[str, ...]) -> list[pa.Table]:
        """The committed rows of each segment, with KEYS and these columns. SourceError where the file is not as committed."""
        sources = [(segment.path, str(segment.sha256)) for segment in segments]
        rows = self._held.pop((file, columns), {})
        nbytes = self._bytes.pop((file, columns), 0)
        if not rows.keys() >= set(sources):
            table = self._read(file, columns)
            rows, nbytes = dict(zip(file.segments, _parted(table, len(file.segments)), strict=True)), table.nbytes
        rest = {source: own for source, own in rows.items() if source not in sources}
        if rest and sum(list(self._bytes.values())) + nbytes <= MOST_HELD:
            self._held[file, columns], self._bytes[file, columns] = rest, nbytes
        asked = ("all",), columns
        return [committed_rows(rows[source], asked, segment) for source, segment in zip(sources, segments, strict=True)]

    def let_go(self) -> None:
        """Forgets the rows that nobody has asked for."""
        self._held.clear()
        self._bytes.clear()

    def _read(self, file: OverallFile, columns: tuple[str, ...]) -> pa.Table:
        """All its rows, with the columns and SEGMENT."""
        schema = wanted(columns)
        with self.files.opened(file.path, file.bytes, file.sha256) as parquet:
            demand_known_segment(parquet.metadata)
            table = read(parquet, [*sources(schema.names, parquet.schema_arrow.names), SEGMENT])
            if SEGMENT not in table.column_names:
                raise SourceError(f"it has no column {SEGMENT!r}")
            return conformed(with_shapes(table, schema.names), schema.append(pa.field(SEGMENT, pa.int32())))


def _parted(table: pa.Table, number: int) -> list[pa.Table]:
    """The rows of each of so many segments. SourceError where they are not in order."""
    places = pl.Series(table[SEGMENT]).to_numpy()
    ends = np.searchsorted(places, np.arange(number + 1))
    if np.any(places[1:] < places[:-1]) or ends[0] or ends[-1] != len(places):
        raise SourceError("its rows are not in the order of its segments")
    rows = table.drop_columns(SEGMENT)
    return [rows.slice(start, end - start) for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
