"""Recomputes the statistics of a run from its token rows, and compares them with those on record.

A digest proves that a segment is unchanged, not that it was right. Steps whose rows are not all on disk, or not as one process
measured them, cannot be compared; they are counted by reason: a budget left rows out, rows were dropped, rows came in several
parts or as slices, or different processes recorded the two sides.

Statistics of gaps that no process could measure alone, because several processes recorded a part each, are computed by a reader
from all token rows of a step. `compact` puts them on record once all writers have ended, so that they survive pruning. They are
stored under a pseudo-writer whose name contains the number of rows: if rows are added later, the name no longer matches, and the
statistics are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence

import polars as pl
import pyarrow as pa

from ratioscope.layout import is_offline, joint_writer, step_spans
from ratioscope.metrics.engines.agreement import TOLERANCE, disagreement
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.metrics.merging import KEYS, merge

from ..commits.attempts import Cutoffs
from ..commits.catalog import Catalog
from ..commits.entries import Segment, TokenFile
from ..commits.file_parts import writers_of
from ..rows.record_rows import RecordRows
from ..statistics.row_plan import RowJob, row_plan
from ..statistics.segment_tables import SegmentTables
from .compaction import MOST_STEPS, Merged, row_plans
from .file_checks import Trouble


def differing(catalog: Catalog, alone: dict[str, int]) -> Iterator[Trouble]:
    """Steps whose statistics differ from their rows. alone: is filled with reason -> number of steps; "" for compared steps."""
    rows = RecordRows(catalog.files, catalog.quarantine)
    segments = SegmentTables(catalog.files, catalog.quarantine)
    cutoffs = catalog.cutoffs()
    for attempt in sorted(catalog.steps_of_attempts()):
        by_step: dict[int, list[TokenFile]] = {}
        for file in sorted(catalog.token_files(), key=lambda file: file.path):
            if file.attempt == attempt and not _is_replaced(cutoffs, file, file.step):
                by_step.setdefault(file.step, []).append(file)
        own = [segment for segment in catalog.segments() if segment.attempt == attempt]
        yield from _of_attempt(catalog, rows, segments, own, by_step, cutoffs, alone)


def _of_attempt(
    catalog: Catalog,
    rows: RecordRows,
    segments: SegmentTables,
    own: Sequence[Segment],
    by_step: Mapping[int, Sequence[TokenFile]],
    cutoffs: Cutoffs,
    alone: dict[str, int],
) -> Iterator[Trouble]:
    measured = segments.gaps_by_writer(own)
    incomplete = {(drop.writer, drop.step) for history in catalog.histories.values() for drop in history.drops}
    writers: dict[int, set[str]] = {}
    for writer, step in measured:
        # those of an offline writer are statistics of the rows on disk, whoever wrote them
        if not is_offline(writer) and not cutoffs.taken_over([writer], step):
            writers.setdefault(step, set()).add(writer)
    plan = row_plan(by_step, measured)
    frames: dict[str, pl.DataFrame | None] = {}
    last = {segment.path: max(segment.steps, default=0) for segment in own}
    for step, files in sorted(by_step.items()):
        reason = _not_comparable(step, files, writers.get(step, set()), incomplete)
        if step in plan.joint:
            reason = reason or "different processes recorded their two sides"
        if step in plan.per_writer:
            reason = reason or "no statistics of them are on record"
        alone[reason] = alone.get(reason, 0) + 1
        if not reason:
            holding = [segment for segment in own if step in segment.steps and not _is_replaced(cutoffs, segment, step)]
            frames |= {s.path: segments.all_slices(s) for s in holding if s.path not in frames}
            recorded = [frame.filter(step=step) for s in holding if (frame := frames[s.path]) is not None]
            yield from _compared(rows, step, files, recorded, ", ".join(sorted(s.path for s in holding)))
        frames = {path: frame for path, frame in frames.items() if last[path] > step}


def _is_replaced(cutoffs: Cutoffs, item: TokenFile | Segment, step: int) -> bool:
    return cutoffs.taken_over(writers_of(item), step)


def _not_comparable(
    step: int, files: Sequence[TokenFile], writers: set[str], incomplete: set[tuple[str, int | None]]
) -> str:
    """Why the step cannot be compared; "" where it can."""
    parts = [writer for file in files for writer, _ in file.policies_by_writer]
    if any(file.left_out for file in files):
        return "a budget left rows out"
    if any((writer, at) in incomplete for writer in {*parts, *writers} for at in (step, None)):
        return "rows were dropped"
    if len(set(parts)) < len(parts):
        return "their rows came in several parts"
    if any(file.slices for file in files):
        return "their rows are slices of sequences"
    return "" if writers <= set(parts) else "some of their rows are not on record"


def _compared(
    rows: RecordRows, step: int, files: Sequence[TokenFile], recorded: Sequence[pl.DataFrame], where: str
) -> Iterator[Trouble]:
    computed = pl.DataFrame(statistics(joined(rows.table(files))))
    odd = disagreement(merge(pl.concat(recorded), KEYS), merge(computed, KEYS)) if recorded else ""
    if odd:
        fault = f"step {step}: its statistics are not those of its token rows: {odd}"
        yield Trouble(
            where,
            fault,
            f"the statistics of its rows: {TOLERANCE}",
            "believe the rows: `ratioscope metrics` shows what the segment holds",
        )


def joint_segments(catalog: Catalog, tables: SegmentTables) -> Iterator[Merged]:
    """Segments with such statistics, of at most MOST_STEPS steps each."""
    for attempt, (_, plan) in row_plans(catalog, tables).items():
        measured = tables.gaps_by_writer([segment for segment in catalog.segments() if segment.attempt == attempt])
        by_step: dict[int, tuple[int, pa.Table]] = {}
        for step, job in sorted(plan.joint.items()):
            gaps = measurable(step, job, measured)
            rows = _rows(catalog, job.files) if gaps else None
            if rows is not None:
                table = statistics(joined(rows))
                by_step[step] = len(rows), table.filter(pc.is_in(table["gap"], pa.array(sorted(gaps))))
            if len(by_step) == MOST_STEPS:
                yield _segment(attempt, by_step)
                by_step = {}
        if by_step:
            yield _segment(attempt, by_step)


def measurable(step: int, job: RowJob, measured: Mapping[tuple[str, int], set[str]]) -> frozenset[str]:
    """Gaps of the job that can be computed exactly from its rows, and of which no statistics are on record yet."""
    if any(file.left_out or file.sha256 is None for file in job.files):
        return frozenset()
    return job.gaps - {gap for (_, at), gaps in measured.items() if at == step for gap in gaps}


def _rows(catalog: Catalog, files: Sequence[TokenFile]) -> pa.Table | None:
    """All rows of the files; None where a file is damaged, or a budget kept rows by chance."""
    rows = RecordRows(catalog.files, catalog.quarantine).table(files)
    is_whole = len(rows) == sum(file.rows for file in files)
    return rows if is_whole and rows["inclusion_probability"].null_count == len(rows) else None


def _segment(attempt: int, by_step: Mapping[int, tuple[int, pa.Table]]) -> Merged:
    steps: dict[tuple[str, str], set[int]] = {}
    for step, (rows, table) in by_step.items():
        for gap in pc.unique(table["gap"]).to_pylist():
            steps.setdefault((joint_writer(rows), gap), set()).add(step)
    measured = [{"writer": name, "gaps": [gap], "steps": step_spans(own)} for (name, gap), own in sorted(steps.items())]
    facts = {"attempt": attempt, "steps": sorted(by_step), "replaces": [], "measured": measured}
    return Merged(pa.concat_tables(table for _, table in by_step.values()), facts)
