"""Rows of statistics segments by slice, and which gaps each segment measured at which steps.

Rows of segments that may still be replaced are kept in memory. The gaps and steps of each segment are kept in the cache for
the next start: `benchmarks/dashboard.py` measures the time that this saves ("a second start").
"""

from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain

import polars as pl
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.layout import SEGMENT_STEPS
from ratioscope.metrics.pieces import portions

from ..commits.entries import OverallFile, Segment
from ..files.parquet_files import FileSignature, ParquetFiles
from ..files.quarantine import SetAside, faults_set_aside
from .kept_tables import MADE_OF, KeptTables, name_of
from .statistics_files import OverallRows, SliceColumns, all_rows, segment_rows

_THREADS = 4
_MANY = 8
"""Number of new segments from which on the copy in the cache is worth reading or writing."""

MOST_PREFETCHED = 1 << 26
"""Bytes of rows after which no more are prefetched: 10,000 steps of one rank have about 50 MB in slice `all`."""
_KEPT_AT_ONCE = 32
"""Number of segments that are prefetched together; a file of overall statistics has the rows of eight."""
_AT_ONCE = 256
"""Number of segments that are looked at together where their rows are not kept."""

_Together = tuple[OverallFile | None, list[Segment]]
"""Segments that are read together, and the file that repeats their rows; None: one segment, from its own file."""

SegmentCoverage = tuple[tuple[str, str, tuple[int, ...]], ...]
"""(writer, gap, steps) for everything that a segment has statistics of."""


@dataclass(frozen=True)
class SliceRows:
    """Rows of some slices of one segment."""

    version: str
    """Names the segment; changes whenever the segment is committed again."""
    steps: frozenset[int]
    rows: pa.Table


@dataclass
class SegmentTables:
    """Reads segments. A segment that is not as committed is set aside and has no rows."""

    files: ParquetFiles
    set_aside: SetAside
    kept: KeptTables | None = None
    """Copies in the cache; None where nothing is to be kept."""
    overall: OverallRows | None = None
    """Reads the files that repeat rows of slice `all`; None where the segments themselves are to be read."""
    _newest: dict[SliceColumns, dict[str, SliceRows]] = field(default_factory=dict)
    """slices -> version -> rows, of the newest segments."""
    _prefetched: dict[SliceColumns, dict[str, SliceRows]] = field(default_factory=dict)
    """slices -> version -> rows, for the next call of `parts` alone."""
    _measured: dict[str, SegmentCoverage] = field(default_factory=dict)
    """version -> what the segment measured."""
    _checked_earlier: dict[str, FileSignature] = field(default_factory=dict)
    """version -> signature of a segment whose digest was checked at an earlier start."""
    _is_copy_read: bool = False
    """True once the copy in the cache was read."""

    def parts(self, segments: Sequence[Segment], slices: Sequence[str], columns: Sequence[str]) -> list[SliceRows]:
        """The rows of the slices in each segment, with KEYS and these columns."""
        return self._parts_of_slices(segments, [(tuple(slices), tuple(columns))])[0]

    def prefetch(self, segments: Sequence[Segment], slices: Sequence[SliceColumns]) -> None:
        """Opens each segment once for several slices, each of which is then read with `parts`, up to MOST_PREFETCHED bytes."""
        self._prefetched, nbytes = {own: {} for own in slices}, 0
        for few in portions(segments, _KEPT_AT_ONCE):
            if nbytes >= MOST_PREFETCHED:
                return
            for own, parts in zip(slices, self._parts_of_slices(few, slices), strict=True):
                self._prefetched[own] |= {part.version: part for part in parts}
                nbytes += sum(part.rows.nbytes for part in parts)

    def gaps_by_writer(
        self, segments: Sequence[Segment], prefetch: Sequence[SliceColumns] = ()
    ) -> dict[tuple[str, int], set[str]]:
        """(writer, step) -> the gaps of which these segments have statistics. prefetch: see `measured_steps`."""
        return gaps_by_writer(self.measured_steps(segments, prefetch).values())

    def measured_steps(
        self, segments: Sequence[Segment], prefetch: Sequence[SliceColumns] = ()
    ) -> dict[str, SegmentCoverage]:
        """version -> what the segment measured: by its commit where it was merged, else by its rows. Damaged ones are left out.

        prefetch: slices that will be read next, `all` first, so that a segment that must be opened is opened once.
        """
        versions = {self.version(segment): segment for segment in segments}
        if not self._is_copy_read and len(versions.keys() - self._measured.keys()) >= _MANY:
            self._read_copy(versions)
        missing = [segment for version, segment in versions.items() if version not in self._measured]
        if missing:
            slices = tuple(prefetch) or ((("all",), ()),)
            self.prefetch(missing, slices)
            known = dict(self._prefetched.get(slices[0], {}))
            rest = [segment for segment in missing if self.version(segment) not in known]
            for few in portions(rest, _AT_ONCE):
                known |= {part.version: part for part in self.parts(few, ("all",), ())}
            self._measured |= {
                version: _measured_in(versions[version], part.rows)
                for version, part in known.items()
                if version in versions
            }
        if self.kept is not None and len(missing) >= _MANY:
            self._write_copy(versions)
        self._measured = {version: own for version, own in self._measured.items() if version in versions}
        return dict(self._measured)

    def unmeasured(self, segments: Sequence[Segment]) -> list[Segment]:
        """The segments that `measured_steps` does not know yet."""
        return [segment for segment in segments if self.version(segment) not in self._measured]

    def let_go(self) -> None:
        """Forgets rows that were read beside others and that nobody has asked for."""
        if self.overall is not None:
            self.overall.let_go()

    def all_slices(self, segment: Segment) -> pl.DataFrame | None:
        """All rows of the segment, of every slice. A segment that is not as committed is set aside, and the result is None."""
        with faults_set_aside(segment.path, self.set_aside):
            return all_rows(self.files, segment)
        return None

    def version(self, segment: Segment) -> str:
        """Names the segment as it is committed; where no commit names it, as it lies on disk."""
        return f"{segment.path} {segment.sha256 or self.files.signature(segment.path)}"

    def lasting_name(self, segment: Segment) -> str | None:
        """A name that the segment has at a later start too, if its file is unchanged. None where its digest was not checked."""
        if segment.sha256 is None:
            return None
        version = self.version(segment)
        signature = self._checked_earlier.get(version) or self.files.checked(segment.path, segment.sha256)
        if signature is None and segment.overall is not None:
            signature = self.files.checked(segment.overall.path, segment.overall.sha256)
        if signature is None:
            return None
        self._checked_earlier[version] = signature  # one name for as long as this reader lives
        return name_of(version, signature)

    def _parts_of_slices(self, segments: Sequence[Segment], slices: Sequence[SliceColumns]) -> list[list[SliceRows]]:
        """For each slice its rows in each segment. Each segment is opened once for all slices."""
        versions = {self.version(segment): segment for segment in segments}
        by_slice = {own: {**self._newest.get(own, {}), **self._taken(own, versions)} for own in slices}
        missing = [version for version in versions if any(version not in parts for parts in by_slice.values())]

        if missing:
            together = self._together([versions[version] for version in missing], slices)
            self.files.bring_all(((own[0].path if file is None else file.path), None) for file, own in together)
            with ThreadPoolExecutor(_THREADS) as pool:
                read = pool.map(lambda each: self._read_together(each[0], each[1], slices), together)
                for own, part in (pair for few in read for parts in few for pair in zip(slices, parts, strict=True)):
                    by_slice[own][part.version] = part
        last = max((max(segment.steps, default=0) for segment in segments), default=0)
        for own, of_slice in by_slice.items():
            newest = (part for part in of_slice.values() if max(part.steps, default=0) > last - SEGMENT_STEPS)
            self._newest[own] = {part.version: part for part in newest}
        return [[by_slice[own][version] for version in versions if version in by_slice[own]] for own in slices]

    def _taken(self, own: SliceColumns, versions: Collection[str]) -> dict[str, SliceRows]:
        """The prefetched rows of these segments, which are kept no longer."""
        prefetched = self._prefetched.get(own, {})
        return {version: prefetched.pop(version) for version in versions if version in prefetched}

    def _together(self, segments: Sequence[Segment], slices: Sequence[SliceColumns]) -> list[_Together]:
        """The segments by the file that repeats what is asked of them; each alone that has none."""
        by_file: dict[OverallFile, list[Segment]] = {}
        alone: list[_Together] = []
        is_overall = self.overall is not None and all(names == ("all",) for names, _ in slices)
        for segment in segments:
            if is_overall and segment.overall is not None:
                by_file.setdefault(segment.overall, []).append(segment)
            else:
                alone.append((None, [segment]))
        return [*by_file.items(), *alone]

    def _read_together(
        self, file: OverallFile | None, segments: list[Segment], slices: Sequence[SliceColumns]
    ) -> list[list[SliceRows]]:
        """The rows of each segment that is as committed, by slice. A damaged file is passed over: the segments have its rows."""
        if file is not None and self.overall is not None:
            with suppress(SourceError):
                by_slice = [self.overall.of(file, segments, columns) for _, columns in slices]
                return [
                    [SliceRows(self.version(segment), segment.steps, rows) for rows in tables]
                    for segment, tables in zip(segments, zip(*by_slice, strict=True), strict=True)
                ]
        self.files.bring_all((segment.path, None) for segment in segments)
        return [parts for segment in segments if (parts := self._read(segment, slices)) is not None]

    def _read(self, segment: Segment, slices: Sequence[SliceColumns]) -> list[SliceRows] | None:
        with faults_set_aside(segment.path, self.set_aside):
            tables = segment_rows(self.files, segment, slices)
            return [SliceRows(self.version(segment), segment.steps, rows) for rows in tables]
        return None

    def _read_copy(self, versions: dict[str, Segment]) -> None:
        """Takes from the cache what segments measured whose files have the signature that they had when they were checked."""
        self._is_copy_read = True
        if self.kept is None:
            return
        paths = [(version, path) for version, segment in versions.items() for path in _paths(segment)]
        signatures = {path: self.files.signature(path) for path in {path for _, path in paths}}
        by_name = {
            name_of(version, own): (version, own) for version, path in paths if (own := signatures[path]) is not None
        }
        rows = self.kept.load(_COPY, by_name)
        for (name,), part in () if rows is None else rows.group_by(MADE_OF):
            version, signature = by_name[str(name)]
            self._checked_earlier[version] = signature
            self._measured[version] = tuple(
                (writer, gap, tuple(steps)) for writer, gap, steps in part.select("writer", "gap", "steps").iter_rows()
            )

    def _write_copy(self, versions: dict[str, Segment]) -> None:
        rows = [
            (name, *measured)
            for version, segment in versions.items()
            if version in self._measured and (name := self.lasting_name(segment)) is not None
            for measured in self._measured[version]
        ]
        if rows and self.kept is not None:
            self.kept.keep(_COPY, pl.DataFrame(rows, schema=[MADE_OF, "writer", "gap", "steps"], orient="row"))


def gaps_by_writer(
    measured: Iterable[SegmentCoverage], steps: Collection[int] | None = None
) -> dict[tuple[str, int], set[str]]:
    """(writer, step) -> the gaps that were measured. steps: only these."""
    gaps: dict[tuple[str, int], set[str]] = {}
    for writer, gap, own in chain.from_iterable(measured):
        for step in own if steps is None else filter(steps.__contains__, own):
            gaps.setdefault((writer, step), set()).add(gap)
    return gaps


def _paths(segment: Segment) -> list[str]:
    """The files that have its rows of slice `all`."""
    return [segment.path, *([] if segment.overall is None else [segment.overall.path])]


_COPY = "measured"
"""Name of the copy in the cache."""


def _measured_in(segment: Segment, rows: pa.Table) -> SegmentCoverage:
    """The gaps and steps that the segment measured. rows: those of the slice `all`."""
    if segment.measured:
        return tuple((m.writer, gap, tuple(sorted(m.steps))) for m in segment.measured for gap in sorted(m.gaps))
    steps_of: dict[str, set[int]] = {}
    for gap, step in zip(rows["gap"].to_pylist(), rows["step"].to_pylist(), strict=True):
        steps_of.setdefault(str(gap), set()).add(step or 0)  # neither is ever null
    return tuple((segment.writer, gap, tuple(sorted(steps))) for gap, steps in steps_of.items())


def holding(segments: Sequence[Segment], steps: Collection[int]) -> list[Segment]:
    """Segments with rows of these steps."""
    return [segment for segment in segments if not segment.steps.isdisjoint(steps)]
