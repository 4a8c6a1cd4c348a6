"""Rows of statistics segments, and what each measures. Rows of segments that may still be replaced are kept in memory."""

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import polars as pl
import pyarrow as pa

from ratioscope.errors import RatioscopeError
from ratioscope.layout import SEGMENT_STEPS

from ..commits.entries import Segment
from ..files.parquet_files import ParquetFiles, Signature
from ..files.quarantine import SetAside
from .kept_tables import MADE_OF, KeptTables, name_of
from .statistics_files import SliceColumns, all_rows, segment_rows

_THREADS = 4
_MANY = 8
"""Segments that are worth a look at what was kept."""

MeasuredSteps = tuple[tuple[str, str, tuple[int, ...]], ...]
"""(writer, gap, steps) of all that a segment holds statistics of."""


@dataclass(frozen=True)
class SliceRows:
    """Rows of one slice of one segment. version: changes whenever the segment is committed anew."""

    version: str
    steps: frozenset[int]
    rows: pa.Table


@dataclass
class SegmentTables:
    """Reads segments. One that cannot be believed is set aside and gives no Part."""

    files: ParquetFiles
    set_aside: SetAside
    kept: KeptTables | None = None
    _parts: dict[SliceColumns, dict[str, SliceRows]] = field(default_factory=dict)
    _facts: dict[str, MeasuredSteps] = field(default_factory=dict)
    _vouched: dict[str, Signature] = field(default_factory=dict)
    _ahead: dict[SliceColumns, dict[str, SliceRows]] = field(default_factory=dict)
    _looked: bool = False

    def parts(self, segments: Sequence[Segment], slice_name: str, columns: Sequence[str]) -> list[SliceRows]:
        """The rows of the slice in each segment, with KEYS and these columns."""
        return self._together(segments, [(slice_name, tuple(columns))])[0]

    def _together(self, segments: Sequence[Segment], asked: Sequence[SliceColumns]) -> list[list[SliceRows]]:
        """parts for several slices, so that a segment is opened once for all of them."""
        known = {one: {**self._parts.get(one, {}), **self._ahead.pop(one, {})} for one in asked}
        versions = {self.version(segment): segment for segment in segments}
        missing = [version for version in versions if any(version not in parts for parts in known.values())]

        def read(version: str) -> list[SliceRows] | None:
            return self._read(version, versions[version], asked)

        if missing:
            with ThreadPoolExecutor(_THREADS) as pool:
                for parts in pool.map(read, missing):
                    for one, part in zip(asked, parts or (), strict=False):
                        known[one][part.version] = part
        newest = max((max(segment.steps, default=0) for segment in segments), default=0)
        for one, found in known.items():
            self._parts[one] = {
                v: part for v, part in found.items() if max(part.steps, default=0) > newest - SEGMENT_STEPS
            }
        return [[known[one][version] for version in versions if version in known[one]] for one in asked]

    def prefetch(self, segments: Sequence[Segment], asked: Sequence[SliceColumns]) -> None:
        """Opens each segment once for all that will be asked of it next."""
        found = self._together(segments, asked)
        self._ahead = {one: {part.version: part for part in parts} for one, parts in zip(asked, found, strict=True)}

    def gaps_by_writer(
        self, segments: Sequence[Segment], ahead: Sequence[SliceColumns] = ()
    ) -> dict[tuple[str, int], set[str]]:
        """(writer, step) -> the gaps that these segments hold statistics of. ahead: as for facts."""
        found: dict[tuple[str, int], set[str]] = {}
        for facts in self.measured_steps(segments, ahead).values():
            for writer, gap, steps in facts:
                for step in steps:
                    found.setdefault((writer, step), set()).add(gap)
        return found

    def measured_steps(
        self, segments: Sequence[Segment], ahead: Sequence[SliceColumns] = ()
    ) -> dict[str, MeasuredSteps]:
        """version -> what it measures, of every segment that can be believed: as its commit says where it was merged, else by
        its rows. ahead: what will be asked for next, the slice `all` first, so that a segment is opened once."""
        versions = {self.version(segment): segment for segment in segments}
        if not self._looked and len(versions.keys() - self._facts.keys()) >= _MANY:
            self._look(versions)
        missing = [segment for version, segment in versions.items() if version not in self._facts]
        if missing:
            asked = tuple(ahead) or (("all", ()),)
            self.prefetch(missing, asked)
            rows = {version: part.rows for version, part in self._ahead[asked[0]].items()}
            self._facts |= {version: _facts(versions[version], own) for version, own in rows.items()}
        if self.kept is not None and len(missing) >= _MANY:
            self._keep(versions)
        self._facts = {version: facts for version, facts in self._facts.items() if version in versions}
        return dict(self._facts)

    def all_slices(self, segment: Segment) -> pl.DataFrame | None:
        """All rows of the segment, of every slice; None, and it is set aside, where it cannot be believed."""
        try:
            return all_rows(self.files, segment)
        except RatioscopeError as error:
            self.set_aside(segment.path, str(error))
            return None

    def version(self, segment: Segment) -> str:
        return f"{segment.path} {segment.sha256 or self.files.signature(segment.path)}"

    def proof(self, segment: Segment) -> str | None:
        """What tells, at a later start, that the segment is the one whose digest was checked; None where it was not."""
        if segment.sha256 is None:
            return None
        version = self.version(segment)
        seen = self.files.checked(segment.path, segment.sha256) or self._vouched.get(version)
        return None if seen is None else name_of(version, seen)

    def _read(self, version: str, segment: Segment, asked: Sequence[SliceColumns]) -> list[SliceRows] | None:
        try:
            tables = segment_rows(self.files, segment, asked)
        except RatioscopeError as error:
            self.set_aside(segment.path, str(error))
            return None
        return [SliceRows(version, segment.steps, rows) for rows in tables]

    def _look(self, versions: dict[str, Segment]) -> None:
        """Takes over what was kept of segments that lie on disk as they did when their digests were checked."""
        self._looked = True
        if self.kept is None:
            return
        seen = {version: self.files.signature(segment.path) for version, segment in versions.items()}
        names = {name_of(version, signature): version for version, signature in seen.items() if signature is not None}
        rows = self.kept.load("measured", frozenset(names))
        for (name,), part in () if rows is None else rows.group_by(MADE_OF):
            version = names[str(name)]
            signature = seen[version]
            assert signature is not None
            self._vouched[version] = signature
            self._facts[version] = tuple(
                (writer, gap, tuple(steps)) for writer, gap, steps in part.select("writer", "gap", "steps").iter_rows()
            )

    def _keep(self, versions: dict[str, Segment]) -> None:
        rows = [
            (proof, *fact)
            for version, segment in versions.items()
            if version in self._facts and (proof := self.proof(segment)) is not None
            for fact in self._facts[version]
        ]
        if rows and self.kept is not None:
            self.kept.keep("measured", pl.DataFrame(rows, schema=[MADE_OF, "writer", "gap", "steps"], orient="row"))


def _facts(segment: Segment, rows: pa.Table) -> MeasuredSteps:
    if segment.measured:
        return tuple((m.writer, gap, tuple(sorted(m.steps))) for m in segment.measured for gap in sorted(m.gaps))
    steps: dict[str, set[int]] = {}
    for gap, step in zip(rows["gap"].to_pylist(), rows["step"].to_pylist(), strict=True):
        steps.setdefault(str(gap), set()).add(step or 0)  # neither is ever null
    return tuple((segment.writer, gap, tuple(sorted(found))) for gap, found in steps.items())


def holding(segments: Sequence[Segment], steps: Collection[int]) -> list[Segment]:
    """Segments with rows of these steps."""
    wanted = set(steps)
    return [segment for segment in segments if not segment.steps.isdisjoint(wanted)]
