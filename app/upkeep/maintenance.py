"""`compact` and `prune`: ingest reads the run and proposes changes, collectors write them. Only this layer may use both."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from errno import EACCES, EPERM, EROFS
from pathlib import Path

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
from ratioscope.ingest.maintenance.pruning import Deletion, Old, old_rows, superseded
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
        return _compacted(idle_catalog(path, writers_ended=writers_ended))


@contextmanager
def folder_written(path: str | os.PathLike[str]) -> Iterator[None]:
    """SourceError in words if the run may not be written."""
    try:
        yield
    except OSError as error:
        if error.errno not in (EACCES, EPERM, EROFS):
            raise
        raise not_writable(path, error) from error


def _compacted(catalog: Catalog) -> Compaction:
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
        return _pruned(idle_catalog(path, writers_ended=writers_ended), old, yes=yes)


def _pruned(catalog: Catalog, old: Old | None, *, yes: bool) -> Pruning:
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
