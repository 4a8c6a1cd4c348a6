"""The rows of slice `all` of several segments, read from the one file that repeats them.

A file of eight segments is decoded in less time than one segment. Whoever reads a run by blocks of steps asks for a few segments
of each file at a time; the others' rows are held until they are asked for, up to a bound.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.layout import SEGMENT
from ratioscope.metrics.engines.statistics_table import sources, with_shapes

from ..commits.entries import Segment
from ..commits.overall_files import OverallFile
from ..files.columns import conformed
from ..files.parquet_files import ParquetFiles, read
from .statistics_files import committed_rows, demand_known_segment, wanted

MOST_HELD = 1 << 28
"""Bytes of rows that are held for later: those of 60 ranks, which have about 4 MB each. With half of it, 64 ranks take 1.6 times
as long, because the files of the others are read once for each block of steps."""

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
