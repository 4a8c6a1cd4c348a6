"""`compact`, `prune`, `repair`: ingest reads the run and proposes changes, collectors write them. Only this layer uses both."""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EACCES, EPERM, EROFS
from functools import partial
from pathlib import Path

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.errors import SourceError, not_writable
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.commits.liveness import at_work
from ratioscope.ingest.commits.short_form import short_form_lines
from ratioscope.ingest.commits.short_forms_of_run import new_short_forms
from ratioscope.ingest.files.folder import run_folder
from ratioscope.ingest.files.parquet_files import ParquetFiles
from ratioscope.ingest.files.run_file import run_file
from ratioscope.ingest.maintenance.compaction import Merged, Skipped, merged_rows, merged_statistics
from ratioscope.ingest.maintenance.file_checks import unnamed_commits
from ratioscope.ingest.maintenance.pruning import Deletion, Old, old_rows, superseded
from ratioscope.ingest.maintenance.repair import (
    lost_statistics,
    place_in_quarantine,
    temporary,
    torn,
    uncommitted,
    unreadable,
)
from ratioscope.ingest.maintenance.statistics_check import joint_segments
from ratioscope.ingest.statistics.segment_tables import SegmentTables
from ratioscope.inside import is_file, status
from ratioscope.process import here


@dataclass
class Compaction:
    """The result of `compact`."""

    written: list[str] = field(default_factory=list)
    """Paths of the merged files."""
    replaced: int = 0
    """Number of files that the merged ones replace."""
    condensed: int = 0
    """Number of commit logs that got a short form."""
    skipped: list[Skipped] = field(default_factory=list)
    """Files that stay as they are, with the reason."""


def idle_catalog(path: str | os.PathLike[str], *, writers_ended: bool = False, is_to_repair: bool = False) -> Catalog:
    """The run's catalog. SourceError if a writer may still be at work, unless the caller knows that all have ended.

    is_to_repair: a broken run.json is no error.
    """
    root = run_folder(path, is_to_repair=is_to_repair)
    run_file(root)
    catalog = Catalog(root, ParquetFiles(root))
    catalog.refresh()
    catalog.demand_read()
    busy = [] if writers_ended else at_work(catalog.writers, here(), time.time())
    if busy:
        more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
        raise SourceError(
            f"{root} is being written: {busy[0]}{more}; wait until training has ended, or, if it has: --writers-ended"
        )
    return catalog


def compact(path: str | os.PathLike[str], *, writers_ended: bool = False) -> Compaction:
    """Merges token files and statistics. If it is killed at any instant, the run still reads the same."""
    with folder_written(path):
        catalog = idle_catalog(path, writers_ended=writers_ended)
        writer = OfflineWriter(catalog.root, "compact")
        done = Compaction()
        for merge in catalog.while_read(_merges(catalog)):
            if isinstance(merge, Skipped):
                done.skipped.append(merge)
                continue
            done.replaced += len([origin for origin in merge.facts["replaces"] if not origin.get("merged")])
            if merge.step is None:
                done.written.append(writer.commit_statistics(merge.rows, merge.facts))
            else:
                done.written.append(writer.commit_rows(merge.step, merge.rows, merge.facts))
        catalog.refresh()  # read the merges, which hide the files that they replaced
        for short in new_short_forms(catalog.histories.values(), catalog.gone()):
            writer.say(*short_form_lines(short))
            done.condensed += 1
        return done


@contextmanager
def folder_written(path: str | os.PathLike[str]) -> Iterator[None]:
    """SourceError in words if the run may not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (EACCES, EPERM, EROFS):
            raise
        raise not_writable(path, error) from error


def _merges(catalog: Catalog) -> Iterator[Merged | Skipped]:
    tables = SegmentTables(catalog.files, catalog.quarantine)
    yield from merged_rows(catalog, tables)
    yield from joint_segments(catalog, tables)
    catalog.refresh()  # read the joint statistics, so that they are merged too
    yield from merged_statistics(catalog)


@dataclass
class Pruning:
    """The files that `prune` deleted, or would delete."""

    files: list[str] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    """Steps whose token rows are given up."""
    bytes: int = 0
    """Bytes of the files."""
    skipped: list[Skipped] = field(default_factory=list)
    """Files that stay, with the reason."""


def prune(path: str | os.PathLike[str], old: Old | None = None, *, yes: bool, writers_ended: bool = False) -> Pruning:
    """Deletes files that merges replaced, and token rows of old steps if `old` is given. Without `yes` it only lists them."""
    with folder_written(path):
        catalog = idle_catalog(path, writers_ended=writers_ended)
        writer = OfflineWriter(catalog.root, "prune")
        done = Pruning()
        for deletion in catalog.while_read(_deletions(catalog, old)):
            if isinstance(deletion, Skipped):
                done.skipped.append(deletion)
                continue
            nbytes = size(catalog.root, list(deletion.files))
            done.files += [file for file in deletion.files if is_file(catalog.root, file)]
            done.steps += deletion.steps
            done.bytes += nbytes
            if yes:
                writer.prune(deletion.files, deletion.steps, nbytes)
        return done


def _deletions(catalog: Catalog, old: Old | None) -> Iterator[Deletion | Skipped]:
    yield from superseded(catalog)
    if old is not None:
        yield from old_rows(catalog, old)


def size(root: Path, files: list[str]) -> int:
    """Bytes of those of the files that exist."""
    return sum(status(root, file).st_size for file in files if is_file(root, file))


Act = tuple[str, Callable[[], object]]
"""(description, function that does it)."""


def repair(path: str | os.PathLike[str], *, dry_run: bool, writers_ended: bool = False) -> list[str]:
    """Lines on the acts done, or with `dry_run` to be done. Each act is one durable step, and no act is repeated."""
    catalog = idle_catalog(path, writers_ended=writers_ended, is_to_repair=True)
    writer = OfflineWriter(catalog.root, "repair")
    lines: list[str] = []
    with folder_written(path):
        for stage in (_moved, _committed, _restored, _noted, _removed):
            acts = catalog.while_read(stage(catalog, writer))
            if dry_run:
                lines += [line for line, _ in acts]
            else:
                lines += _carried_out(acts)
                catalog.refresh()
    return lines


def _carried_out(acts: Iterable[Act]) -> Iterator[str]:
    """Carries each act out, after its line."""
    for line, act in acts:
        yield line
        act()


def _moved(catalog: Catalog, writer: OfflineWriter) -> Iterator[Act]:
    for file in list(unreadable(catalog)):
        target = place_in_quarantine(catalog.root, layout.QUARANTINE, file.path)
        yield (
            f"{file.path} moved to {target}: {file.reason}",
            partial(writer.quarantine, file.path, target, file.reason),
        )


def _committed(catalog: Catalog, writer: OfflineWriter) -> Iterator[Act]:
    for file in list(uncommitted(catalog)):
        yield (f"{file.path} committed, as its footer describes it", partial(writer.commit_file, file.path, file.facts))
    for path, entry in list(unnamed_commits(catalog)):
        yield f"{path} committed, as its footer describes it", partial(writer.say, entry)


def _restored(catalog: Catalog, writer: OfflineWriter) -> Iterator[Act]:
    for statistics in lost_statistics(catalog):
        steps = statistics.facts["steps"]
        line = f"statistics of {statistics.facts['writer']}, {len(steps)} steps from {steps[0]} on, computed from token rows"
        yield line, partial(writer.commit_statistics, statistics.rows, statistics.facts)


def _noted(catalog: Catalog, writer: OfflineWriter) -> Iterator[Act]:
    for damage in list(torn(catalog)):
        what = f"{damage.altered} altered lines and {damage.tail} bytes of an unfinished one"
        what += f", and lines that do not follow each other, in {damage.breaks} places" if damage.breaks else ""
        faults = {"altered": damage.altered, "tail": damage.tail, "breaks": damage.breaks}
        entry = {"kind": layout.NOTED, "log": damage.log, **faults}
        yield f"{damage.log} has {what}: left as they are, logs are append-only", partial(writer.say, entry)


def _removed(catalog: Catalog, writer: OfflineWriter) -> Iterator[Act]:
    for file in list(temporary(catalog)):
        yield f"{file.path} removed: its writer ended while it wrote it", partial(writer.delete, [file.path])
