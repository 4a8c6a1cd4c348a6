"""Finds files that can be deleted: files that a merge replaced, and token rows of old steps whose statistics are on record.

Before a replaced file is offered for deletion, the merged file is read to its last page and compared with the files it replaced,
as far as these can be read.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ratioscope.errors import RatioscopeError
from ratioscope.metrics.engines.agreement import disagreement
from ratioscope.metrics.merging import KEYS, merge
from ratioscope.record import GAPS

from ..commits.catalog import Catalog
from ..commits.entries import Segment, TokenFile
from ..commits.visible_files import leftovers
from ..statistics.row_plan import RowPlan
from ..statistics.segment_tables import SegmentTables
from ..statistics.statistics_files import all_rows
from .compaction import Skipped, merged_segments, raw_rows, row_plans
from .file_checks import demand_file, readings_of
from .statistics_check import measurable


@dataclass(frozen=True)
class Deletion:
    """Files that are deleted together."""

    files: tuple[str, ...]
    steps: tuple[int, ...] = ()
    """Steps whose token rows are given up; empty where other files hold the rows."""


@dataclass(frozen=True)
class Old:
    """The rule that makes a step old. Both conditions must hold; None is always true."""

    keep_steps: int | None = None
    """A step is old if it is not among the newest `keep_steps`."""
    before: float | None = None
    """A step is old if all its files were committed before this time, in seconds since 1970."""


def superseded(catalog: Catalog) -> Iterator[Deletion | Skipped]:
    """Files that a merge replaced, each after the merged file was verified, and files that a killed `compact` or `prune` left."""
    rest = set(leftovers(catalog))
    items: list[TokenFile | Segment] = [*catalog.token_files(), *catalog.segments()]
    for item in items:
        old = tuple(sorted(rest & {origin.path for origin in item.replaces}))
        if not old:
            continue
        rest -= set(old)
        try:
            _demand_equal(catalog, item)
        except RatioscopeError as error:
            catalog.quarantine(item.path, str(error))
            yield Skipped(", ".join(old[:3]), f"{item.path} does not hold their rows: {error}")
        else:
            yield Deletion(old)
    if rest:
        yield Deletion(tuple(sorted(rest)))


def old_rows(catalog: Catalog, old: Old) -> Iterator[Deletion | Skipped]:
    """Token rows of old steps. Steps are skipped where a metric could not be computed without the rows."""
    tables = SegmentTables(catalog.files, catalog.quarantine)
    steps = sorted({step for found in catalog.steps_of_attempts().values() for step in found})
    recent = set(steps[-old.keep_steps :] if old.keep_steps else []) if old.keep_steps is not None else set[int]()
    steps_measured = {step for segment in catalog.segments() for step in segment.steps}
    for attempt, (by_step, plan) in row_plans(catalog, tables).items():
        measured = tables.gaps_by_writer([segment for segment in catalog.segments() if segment.attempt == attempt])
        for step, files in by_step.items():
            if step in recent or not _is_before(files, old.before):
                continue
            if step in plan.joint or step in plan.per_writer or step not in steps_measured:
                yield Skipped(f"token rows of step {step}", _why_kept(step, plan, measured))
            else:
                replaced = [origin.path for file in files for origin in file.replaces]
                readings = readings_of(catalog, attempt, (step,))
                yield Deletion(tuple(sorted({*(file.path for file in files), *replaced, *readings})), (step,))


def _why_kept(step: int, plan: RowPlan, measured: Mapping[tuple[str, int], set[str]]) -> str:
    """The data that would be lost with the rows of the step, and the action to take first, in words."""
    joint, per_writer = plan.joint.get(step), plan.per_writer.get(step)
    if joint is None:
        gaps = ", ".join(gap for gap in GAPS if per_writer is not None and gap in per_writer.gaps) or "it"
        return f"no statistics of {gaps} are on record; readers compute them from these rows: run `ratioscope repair RUN` first"
    reason = (
        f"its {', '.join(gap for gap in GAPS if gap in joint.gaps)} is measured of rows of several processes together"
    )
    if any(file.left_out for file in joint.files):
        return f"{reason}, and a budget left rows out, so that the rows on disk are the only record of it"
    if measurable(step, joint, measured) == joint.gaps:
        return f"{reason}: run `ratioscope compact RUN` first, which puts the statistics on record"
    return f"{reason}, because one process measured it without facts (versions, turns) that another process recorded"


def _is_before(files: list[TokenFile], before: float | None) -> bool:
    return before is None or all(file.time is not None and file.time < before for file in files)


def _demand_equal(catalog: Catalog, item: TokenFile | Segment) -> None:
    """An error unless the merged file can be read and equals the files it replaced, as far as these can be read."""
    demand_file(catalog.files, item, deep=True)
    try:
        reason = _difference(catalog, item)
    except RatioscopeError:  # an old file is damaged or gone: the new one has its per_writer digest
        return
    if reason:
        raise RatioscopeError(reason)


def _difference(catalog: Catalog, item: TokenFile | Segment) -> str:
    before = [catalog.committed(origin.path) for origin in item.replaces if not origin.merged]
    if isinstance(item, TokenFile):
        rows = raw_rows(catalog, [file for file in before if isinstance(file, TokenFile)])
        return "" if rows.equals(raw_rows(catalog, [item])) else "its rows are others"
    frame = merged_segments(catalog, [segment for segment in before if isinstance(segment, Segment)])
    return disagreement(frame, merge(all_rows(catalog.files, item), KEYS))
