"""Statistics of gaps that no process could measure alone, because several processes recorded a part each.

A reader computes them from all token rows of a step. `compact` puts them on record once all writers have ended, so that they
survive pruning. They are stored under a pseudo-writer whose name contains the number of rows: if rows are added later, the name
no longer matches, and the statistics are ignored.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from ratioscope.layout import joint_writer, step_spans
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics

from ..commits.catalog import Catalog
from ..commits.entries import TokenFile
from ..rows.record_rows import RecordRows
from ..statistics.row_plan import RowJob
from ..statistics.segment_tables import SegmentTables
from .compaction import MOST_STEPS, Merged, row_plans


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
