"""Merges the token files of a step, and statistics segments, without changing anything that a Run returns.

Rows keep their order, so that records read the same. A step is left as it is where a merge could lose something: a file without
a commit, a column that no Record has, or statistics that are not on record, because merged rows no longer name their writer.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import polars as pl
import pyarrow as pa

from ratioscope.errors import SourceError
from ratioscope.layout import step_spans
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.record import POLICIES, SLICED_BY, arrow_schema

from ..commits.catalog import Catalog
from ..commits.entries import Origin, Segment, TokenFile
from ..commits.file_parts import writers_of
from ..commits.visible_files import visible_files
from ..files.columns import SCHEMA, conformed
from ..files.parquet_files import ParquetFiles, read
from ..rows.record_rows import committed_size, demand_token_file
from ..statistics.row_plan import RowPlan, row_plan
from ..statistics.segment_tables import SegmentTables
from ..statistics.statistics_files import all_rows

MOST_BYTES = 256 << 20
"""Bytes of the token files that are merged into one, as they are held in memory together. A convention."""
MOST_STEPS = 512
"""Steps of a merged segment, unless one of its sources has more. A convention."""
MOST_FILES = 1024
"""Files merged into one, so that its commit line stays shorter than the longest line that is read."""
_FOLDED = 16
_THREADS = 4
"""Threads that read files: reading mostly waits for a disk or a network."""


@dataclass(frozen=True)
class Merged:
    """A merged file to write."""

    rows: pa.Table
    facts: dict[str, Any]
    """Members of its commit line, without size and digest."""
    step: int | None = None
    """The step of a token file; None for statistics."""


@dataclass(frozen=True)
class Skipped:
    """Files that stay as they are."""

    what: str
    """The files, in words."""
    reason: str


def row_plans(catalog: Catalog, tables: SegmentTables) -> dict[int, tuple[dict[int, list[TokenFile]], RowPlan]]:
    """attempt -> (its token files by step, in the order they are read; the gaps to compute from their rows).

    Files of writers that another writer replaced are left out: merged with others they could no longer be hidden.
    """
    plans: dict[int, tuple[dict[int, list[TokenFile]], RowPlan]] = {}
    segments, cutoffs = catalog.segments(), catalog.cutoffs()
    for attempt in sorted(catalog.steps_of_attempts()):
        by_step: dict[int, list[TokenFile]] = {}
        for file in sorted(catalog.token_files(), key=lambda file: file.path):
            if file.attempt == attempt and not cutoffs.taken_over(writers_of(file), file.step):
                by_step.setdefault(file.step, []).append(file)
        measured = tables.gaps_by_writer([segment for segment in segments if segment.attempt == attempt])
        plans[attempt] = dict(sorted(by_step.items())), row_plan(by_step, measured)
    return plans


def merged_rows(catalog: Catalog, tables: SegmentTables) -> Iterator[Merged | Skipped]:
    """One merged file for each step with several token files."""
    for by_step, plan in row_plans(catalog, tables).values():
        for step, files in by_step.items():
            if len(files) < 2:
                continue
            if reason := _unmergeable(files, lost=step in plan.per_writer):
                yield Skipped(f"step {step}", reason)
            else:
                yield from _merged_step(catalog, step, files)


def _merged_step(catalog: Catalog, step: int, files: list[TokenFile]) -> Iterator[Merged | Skipped]:
    reason = ""
    for few in _few(files):
        try:
            yield Merged(raw_rows(catalog, few), _facts_of_rows(few), step)
        except SourceError as error:
            reason = str(error)
    if reason:
        yield Skipped(f"step {step}", reason)


def merged_statistics(catalog: Catalog) -> Iterator[Merged | Skipped]:
    """Statistics segments of many writers and steps, merged into few. Visible and hidden segments are merged separately."""
    visible = visible_files(catalog)
    for attempt in sorted(catalog.steps_of_attempts()):
        every = [s for s in catalog.segments() if s.attempt == attempt and s.sha256 is not None]
        own = [s for s in every if not visible.cutoffs.taken_over(writers_of(s))]
        shown = {segment.path for segment in visible.segments}
        alike = [[segment for segment in own if (segment.path in shown) is is_shown] for is_shown in (True, False)]
        for few in (few for part in alike for few in _neighbours(part)):
            try:
                frame, measured = _folded(catalog, few)
            except SourceError as error:
                yield Skipped(f"statistics of {len(few)} segments", str(error))
                continue
            facts = {"attempt": attempt, "steps": sorted({step for segment in few for step in segment.steps})}
            replaces = [origin for segment in few for origin in _origins(segment)]
            yield Merged(frame.to_arrow().cast(SCHEMA), {**facts, "replaces": replaces, "measured": measured})


def merged_segments(catalog: Catalog, segments: Sequence[Segment]) -> pl.DataFrame:
    """The rows of the segments, merged."""
    return _folded(catalog, segments)[0]


def raw_rows(catalog: Catalog, files: Sequence[TokenFile]) -> pa.Table:
    """All rows of the files with all columns. SourceError where a file is damaged, or has columns that a merge would lose."""
    with ThreadPoolExecutor(_THREADS) as pool:
        tables = list(pool.map(partial(_raw_table, catalog.files), files))
    schema = arrow_schema()
    if any(table.schema != tables[0].schema for table in tables):
        tables = [conformed(table, schema) for table in tables]
    return conformed(pa.concat_tables(tables), schema).combine_chunks()


def _raw_table(files: ParquetFiles, file: TokenFile) -> pa.Table:
    """The rows as the file stores them, texts as dictionaries."""
    with files.opened(file.path, committed_size(file), file.sha256) as parquet:
        if extra := demand_token_file(parquet, file):
            raise SourceError(f"{file.path} has columns that no Record has, and that a merge would lose: {extra[0]}")
        return read(parquet, arrow_schema().names)


def _unmergeable(files: Sequence[TokenFile], *, lost: bool) -> str:
    if any(file.sha256 is None for file in files):
        return "no commit names one of its files: `ratioscope repair RUN` first"
    return "statistics of it are not on record: `ratioscope repair RUN` first" if lost else ""


def _few(files: Sequence[TokenFile]) -> Iterator[Sequence[TokenFile]]:
    """Groups of files in order; each group is merged into one file."""
    few: list[TokenFile] = []
    for file in files:
        if few and (len(few) == MOST_FILES or sum(f.bytes for f in few) + file.bytes > MOST_BYTES):
            yield from [few] if len(few) > 1 else []
            few = []
        few.append(file)
    yield from [few] if len(few) > 1 else []


def _facts_of_rows(files: Sequence[TokenFile]) -> dict[str, Any]:
    return {
        "attempt": files[0].attempt,
        "tokens": sum(file.tokens for file in files),
        "left_out": sum(file.left_out for file in files),
        "slices": sum(file.slices for file in files),
        "policies": [p for p in POLICIES if any(p in file.policies for file in files)],
        "facts": [name for name in SLICED_BY if any(name in file.slice_columns for file in files)],
        "time": max((file.time for file in files if file.time is not None), default=None),
        "gaps": sorted({gap for file in files for gap in file.gaps}),
        "replaces": [origin for file in files for origin in _origins(file)],
        **({"unmeasured": True} if any(file.unmeasured for file in files) else {}),
    }


def _origins(item: TokenFile | Segment) -> list[dict[str, Any]]:
    """The file and the files that it had replaced, as the `replaces` member of a commit line."""
    policies, facts = (item.policies, item.slice_columns) if isinstance(item, TokenFile) else (frozenset(), frozenset())
    own = Origin(item.path, item.sha256 or "", item.writer, policies, bool(item.replaces), facts)
    return [
        {"file": o.path, "sha256": o.sha256, "writer": o.writer}
        | ({"policies": sorted(o.policies)} if o.policies else {})
        | ({"facts": sorted(o.slice_columns)} if o.slice_columns else {})
        | ({"merged": True} if o.merged else {})
        for o in (own, *item.replaces)
    ]


def _neighbours(segments: Sequence[Segment]) -> Iterator[Sequence[Segment]]:
    """Groups of segments in the order of their steps; each group is merged into one. Segments that are large already stay."""
    few: list[Segment] = []
    steps: set[int] = set()
    for segment in sorted(segments, key=lambda s: (min(s.steps, default=0), s.path)):
        files = sum(len(s.replaces) + 1 for s in (*few, segment))
        if few and (len(steps | segment.steps) > MOST_STEPS or files > MOST_FILES):
            yield from [few] if len(few) > 1 else []
            few, steps = [], set()
        few.append(segment)
        steps |= segment.steps
    yield from [few] if len(few) > 1 else []


def _folded(catalog: Catalog, segments: Sequence[Segment]) -> tuple[pl.DataFrame, list[dict[str, Any]]]:
    """(the merged rows, the `measured` member of the commit line). Holds a few segments in memory at a time."""
    total = waiting = pl.DataFrame()
    measured: dict[tuple[str, str], set[int]] = {}
    for place, segment in enumerate(segments):
        rows = all_rows(catalog.files, segment)
        for writer, step, gap in _measurements(segment, rows):
            measured.setdefault((writer, gap), set()).add(step)
        waiting = pl.concat([waiting, rows]) if len(waiting) else rows
        if (place + 1) % _FOLDED == 0 or place + 1 == len(segments):
            frame = pl.concat([total, waiting]) if len(total) else waiting
            total = merge(frame, KEYS).select(frame.columns)
            waiting = pl.DataFrame()
    told = [
        {"writer": writer, "gaps": [gap], "steps": step_spans(steps)}
        for (writer, gap), steps in sorted(measured.items())
    ]
    return total, told


def _measurements(segment: Segment, rows: pl.DataFrame) -> Iterator[tuple[str, int, str]]:
    if segment.measured:
        yield from ((m.writer, step, gap) for m in segment.measured for step in m.steps for gap in m.gaps)
    else:
        yield from (
            (segment.writer, *pair) for pair in rows.filter(slice="all").select("step", "gap").unique().iter_rows()
        )
