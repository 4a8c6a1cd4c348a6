"""What was read of every statistics segment, kept so that a segment is read once per slice however often a run is refreshed."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import RatioscopeError

from .commits import Measured, Segment
from .parquet_files import ParquetFiles
from .record_rows import SetAside
from .statistics_files import all_rows, segment_rows

_THREADS = 4


@dataclass(frozen=True)
class Part:
    """Rows of one slice of one segment. version: changes whenever the segment is committed anew."""

    version: str
    writer: str
    steps: frozenset[int]
    frame: pl.DataFrame
    measured: tuple[Measured, ...] = ()

    def measurements(self) -> Iterator[tuple[str, int, str]]:
        """(writer, step, gap) for all that it holds statistics of: as its commit says where it was merged, else by its rows."""
        if self.measured:
            yield from ((m.writer, step, gap) for m in self.measured for step in m.steps for gap in m.gaps)
        else:
            yield from ((self.writer, *pair) for pair in self.frame.select("step", "gap").unique().iter_rows())


@dataclass
class SegmentTables:
    """Reads segments. One that cannot be believed is set aside and gives no Part."""

    files: ParquetFiles
    set_aside: SetAside
    _parts: dict[tuple[str, ...], dict[str, Part]] = field(default_factory=dict)

    def parts(self, segments: Sequence[Segment], slice_name: str, columns: Sequence[str]) -> list[Part]:
        """The rows of the slice in each segment, with KEYS and these columns."""
        known = self._parts.get((slice_name, *columns), {})
        versions = {self._version(segment): segment for segment in segments}
        missing = [version for version in versions if version not in known]

        def one(version: str) -> Part | None:
            return self._read(version, versions[version], slice_name, columns)

        with ThreadPoolExecutor(_THREADS) as pool:
            found = {part.version: part for part in pool.map(one, missing) if part is not None}
        current = {
            version: known.get(version) or found[version]
            for version in versions
            if version in known or version in found
        }
        self._parts[slice_name, *columns] = current
        return list(current.values())

    def measured(self, segments: Sequence[Segment], columns: Sequence[str] = ()) -> dict[tuple[str, int], set[str]]:
        """(writer, step) -> the gaps that these segments hold statistics of. columns: those that will be read anyhow."""
        found: dict[tuple[str, int], set[str]] = {}
        for part in self.parts(segments, "all", columns):
            for writer, step, gap in part.measurements():
                found.setdefault((writer, step), set()).add(gap)
        return found

    def whole(self, segment: Segment) -> pl.DataFrame | None:
        """All rows of the segment, of every slice; None, and it is set aside, where it cannot be believed."""
        try:
            return all_rows(self.files, segment)
        except RatioscopeError as error:
            self.set_aside(segment.path, str(error))
            return None

    def _version(self, segment: Segment) -> str:
        return f"{segment.path} {segment.sha256 or self.files.signature(segment.path)}"

    def _read(self, version: str, segment: Segment, slice_name: str, columns: Sequence[str]) -> Part | None:
        try:
            rows = segment_rows(self.files, segment, slice_name, columns)
        except RatioscopeError as error:
            self.set_aside(segment.path, str(error))
            return None
        return Part(version, segment.writer, segment.steps, rows, segment.measured)
