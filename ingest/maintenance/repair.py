"""Finds what can be restored in a damaged run without inventing data. Each act is proposed here and carried out by the verb.

Files without a commit are committed as their footers describe them. Lost statistics are computed from token rows, where all rows
are on disk. Unreadable files are moved aside. Logs are append-only: a damaged log is never edited, not even its torn last line;
the verb notes the damage in its own log.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from ratioscope.errors import RatioscopeError, SourceError
from ratioscope.inside import FolderEntry, entries, open_regular, status
from ratioscope.layout import COMMITS, OVERALL, READINGS, RUN_FILE, SCALARS, STATISTICS, TOKENS, TOPK, step_spans
from ratioscope.metrics.engines.arrow_columns import pc
from ratioscope.metrics.engines.join import joined
from ratioscope.metrics.engines.numpy_engine import statistics
from ratioscope.record import POLICIES, SLICED_BY

from ..commits.catalog import Catalog
from ..commits.entries import Segment, TokenFile
from ..commits.reading_files import ReadingFile
from ..commits.recovery import recovered
from ..commits.visible_files import uncommitted_files
from ..files.folder import run_file_fault
from ..files.listing import listing
from ..rows.record_rows import RecordRows
from ..statistics.segment_tables import SegmentTables
from .compaction import MOST_STEPS, row_plans
from .file_checks import RowsDisagree, damage_of, demand_file

_LONGEST_NAME = 240
"""Bytes; file systems take 255."""
_TEMPORARY = re.compile(r"\..+\.\d+-\d+")


@dataclass(frozen=True)
class Commit:
    """Commit a file that no commit describes."""

    path: str
    facts: dict[str, Any]
    """Members of its commit line."""


@dataclass(frozen=True)
class Move:
    """Move a file that cannot be read into the run's quarantine folder. It is never deleted."""

    path: str
    reason: str


@dataclass(frozen=True)
class Remove:
    """Delete a temporary file that was being written when its writer ended."""

    path: str


@dataclass(frozen=True)
class Restore:
    """Write statistics that were computed from token rows."""

    rows: pa.Table
    facts: dict[str, Any]
    """Members of the segment's commit line."""


@dataclass(frozen=True)
class NoteDamage:
    """Note the damage of a log, so that `verify` no longer reports it."""

    log: str
    altered: int
    """Lines with a wrong checksum."""
    tail: int
    """Bytes of an unfinished last line."""
    breaks: int
    """Number of places where lines are missing or out of order."""


def unreadable(catalog: Catalog) -> Iterator[Move]:
    """Files that differ from their commits, files that do not belong into a run, and a run.json that is none."""
    if fault := run_file_fault(catalog.root):
        yield Move(RUN_FILE, f"{RUN_FILE} {fault}")
    for path, reason in sorted(listing(catalog.root).foreign.items()):
        if "/" in path and catalog.files.signature(path) is not None:
            yield Move(path, reason)
    for item in (*catalog.by_path(), *sorted(catalog.readings(), key=lambda file: file.path)):
        damage = damage_of(catalog, item) if isinstance(item, ReadingFile) else _damage(catalog, item)
        if damage and catalog.files.signature(item.path) is not None:
            catalog.quarantine(item.path, damage)
            yield Move(item.path, damage)


def uncommitted(catalog: Catalog) -> Iterator[Commit]:
    """Complete files that no commit names, or that their commit describes wrongly."""
    paths = []
    for item in catalog.by_path():
        if item.replaces:
            continue
        signature = catalog.files.signature(item.path)
        if item.sha256 is None or (isinstance(item, Segment) and signature is not None and signature[1] != item.bytes):
            paths.append(item.path)
    paths += uncommitted_files(catalog)
    described = (recovered(catalog.files, path, catalog.quarantine) for path in paths)
    items = [item for item in described if item is not None]
    uncounted = catalog.uncounted([item for item in items if isinstance(item, TokenFile)])
    yield from (_commit(catalog, item, item.path in uncounted) for item in items)


def temporary(catalog: Catalog) -> Iterator[Remove]:
    """Temporary files of writers that ended while writing them."""
    steps = [entry.name for entry in _entries(catalog, TOKENS) if entry.is_folder and entry.name.startswith("step=")]
    read = [TOPK, *(f"{READINGS}/{entry.name}" for entry in _entries(catalog, READINGS) if entry.is_folder)]
    read += [f"{folder}/{entry.name}" for folder in read for entry in _entries(catalog, folder) if entry.is_folder]
    for folder in ("", COMMITS, OVERALL, SCALARS, STATISTICS, TOKENS, *(f"{TOKENS}/{name}" for name in steps), *read):
        for entry in _entries(catalog, folder):
            if _TEMPORARY.fullmatch(entry.name) and entry.is_file:
                yield Remove(f"{folder}/{entry.name}" if folder else entry.name)


def _entries(catalog: Catalog, folder: str) -> list[FolderEntry]:
    """The entries of a folder of the run, by name; none where it is missing or leads out of the run."""
    try:
        return sorted(entries(catalog.root, folder))
    except OSError:
        return []


def lost_statistics(catalog: Catalog) -> Iterator[Restore]:
    """Statistics that are not on record, computed from the rows of each writer of which no row was dropped."""
    tables = SegmentTables(catalog.files, catalog.quarantine)
    dropped = {(drop.writer, drop.step) for history in catalog.histories.values() for drop in history.drops}
    for attempt, (_, plan) in row_plans(catalog, tables).items():
        measured = tables.gaps_by_writer([segment for segment in catalog.segments() if segment.attempt == attempt])
        by_writer: dict[str, list[pa.Table]] = {}
        jobs = (
            (step, job, writer)
            for step, job in sorted(plan.per_writer.items())
            for writer in sorted({file.writer for file in job.files if not file.replaces})
        )
        for step, job, writer in jobs:
            gaps = job.gaps - measured.get((writer, step), set())
            files = [file for file in job.files if file.writer == writer]
            if not any((writer, at) in dropped for at in (step, None)) and gaps:
                by_writer.setdefault(writer, []).extend(_measured(catalog, files, gaps))
        for writer, parts in sorted(by_writer.items()):
            for start in range(0, len(parts), MOST_STEPS):
                yield _segment(writer, attempt, pa.concat_tables(parts[start : start + MOST_STEPS]))


def torn(catalog: Catalog) -> Iterator[NoteDamage]:
    """Damaged logs whose damage no repair has noted yet."""
    for history in catalog.histories.values():
        log = history.log
        if log.torn and catalog.noted(log.file) != log.faults:
            yield NoteDamage(log.file, *log.faults)


def _damage(catalog: Catalog, item: TokenFile | Segment) -> str | None:
    try:
        demand_file(catalog.files, item, deep=True)
    except RowsDisagree:
        return None
    except SourceError as error:
        return str(error)
    except RatioscopeError:  # another version wrote it, and can read it
        return None
    return None


def _commit(catalog: Catalog, item: TokenFile | Segment, is_uncounted: bool) -> Commit:
    with open_regular(catalog.root, item.path) as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        size = os.fstat(file.fileno()).st_size
    facts: dict[str, Any] = {"writer": item.writer, "attempt": item.attempt, "bytes": size, "sha256": sha256}
    if isinstance(item, Segment):
        return Commit(item.path, {**facts, "steps": sorted(item.steps)})
    return Commit(
        item.path,
        {
            **facts,
            "step": item.step,
            "rows": item.rows,
            "tokens": item.tokens,
            "slices": item.slices,
            "policies": [policy for policy in POLICIES if policy in item.policies],
            "gaps": sorted(item.gaps),
            "facts": [name for name in SLICED_BY if name in item.slice_columns],
            **({"unmeasured": True} if is_uncounted else {}),
        },
    )


def _measured(catalog: Catalog, files: list[TokenFile], gaps: frozenset[str]) -> Iterator[pa.Table]:
    """The statistics of these rows; nothing where a budget left rows out."""
    rows = RecordRows(catalog.files, catalog.quarantine).table(files)
    if any(file.left_out for file in files) or rows["inclusion_probability"].null_count < len(rows):
        return
    table = statistics(joined(rows))
    yield table.filter(pc.is_in(table["gap"], pa.array(sorted(gaps))))


def _segment(writer: str, attempt: int, rows: pa.Table) -> Restore:
    pairs = set(zip(rows["gap"].to_pylist(), rows["step"].to_pylist(), strict=True))
    measured = [
        {
            "writer": writer,
            "gaps": [gap],
            "steps": step_spans({step for other, step in pairs if other == gap and step is not None}),
        }
        for gap in sorted({str(gap) for gap, _ in pairs})
    ]
    steps = sorted({step for _, step in pairs if step is not None})
    return Restore(rows, {"writer": writer, "attempt": attempt, "steps": steps, "measured": measured})


def place_in_quarantine(root: Path, folder: str, path: str) -> str:
    """A path in the run's quarantine folder that is not taken yet."""
    name = os.fsdecode(os.fsencode(path.replace("/", "__"))[-_LONGEST_NAME:])
    number = 0
    while _is_taken(root, found := f"{folder}/{name}{f'.{number}' if number else ''}"):
        number += 1
    return found


def _is_taken(root: Path, path: str) -> bool:
    try:
        status(root, path)
    except FileNotFoundError:
        return False
    return True
