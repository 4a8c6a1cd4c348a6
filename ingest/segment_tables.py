"""What was read of every statistics segment, kept so that a segment is read once per slice however often a run is refreshed."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl

from ratioscope.errors import RatioscopeError

from .commits import Segment
from .parquet_files import ParquetFiles
from .record_rows import SetAside
from .statistics_files import segment_rows

_THREADS = 4


@dataclass(frozen=True)
class Part:
    """Rows of one slice of one segment. version: changes whenever the segment is committed anew."""

    version: str
    writer: str
    steps: frozenset[int]
    frame: pl.DataFrame


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

    def _version(self, segment: Segment) -> str:
        return f"{segment.path} {segment.sha256 or self.files.signature(segment.path)}"

    def _read(self, version: str, segment: Segment, slice_name: str, columns: Sequence[str]) -> Part | None:
        try:
            rows = segment_rows(self.files, segment, slice_name, columns)
        except RatioscopeError as error:
            self.set_aside(segment.path, str(error))
            return None
        return Part(version, segment.writer, segment.steps, rows)
