"""`repair`, act by act: ingest finds the data that can be restored, collectors write them, and a line describes each act."""

import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ratioscope import layout
from ratioscope.collectors.writing.offline import OfflineWriter
from ratioscope.ingest.commits.catalog import Catalog
from ratioscope.ingest.maintenance.file_checks import unnamed_commits
from ratioscope.ingest.maintenance.repair import (
    lost_statistics,
    place_in_quarantine,
    temporary,
    torn,
    uncommitted,
    unreadable,
)

from .maintenance import folder_written, idle_catalog

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
        yield (
            f"{file.path} committed, as its footer describes it",
            partial(writer.commit_file, file.path, file.facts),
        )
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
