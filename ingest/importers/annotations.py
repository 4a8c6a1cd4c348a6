"""Annotations: what a trainer learns about a sample once it is written, in files of their own that name the sample.

The rows of such files wait on disk until the rows that they annotate are read. Memory does not grow.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ratioscope.errors import UnsafeFile

from .containers import content
from .detection import fitting
from .joining import JoinStore
from .row import SetAside, Unreadable, inside
from .samples import UNFINISHED, RecordedRow, Rejected
from .source_files import File, Options

ALONE = " (annotations; import the folder that holds what they annotate, too)"
_NAME = "annotations"


def annotates(file: File) -> bool:
    """True if the name of the file is one of annotations."""
    return any(each.part.annotates for each in file.found)


def may_be_annotated(file: File) -> bool:
    """True if the file may have rows that others annotate."""
    return any(each.part.annotated for each in file.found)


def kept(file: File, store: JoinStore, options: Options) -> Iterator[Rejected]:
    """Keeps the rows of a file in the store; tells those that annotate nothing. A file of other rows has no `read_as` then."""
    known = tuple(each for each in file.found if each.part.annotates)
    part = known[0].part
    with content(file.path, part.container, {}, options.limits) as opened:
        try:
            file.read_as, left = fitting(opened, known)
        except UnsafeFile:  # it is said when the file is read as one of other rows
            return
        if file.read_as is None or left.rows is None:
            return
        for number, row in enumerate(left.rows):
            if (fault := _fault(row, part.annotates)) is None:
                file.rows += 1
                _keep(store, row, str(inside(row, part.annotates)), file, number)
            elif isinstance(row, Unreadable) and row.is_cut:
                file.leave_out(SetAside(UNFINISHED))
            else:
                yield Rejected(file.name, number, None, fault)


def _fault(row: Any, place: str) -> str | None:
    if isinstance(row, Unreadable):
        return row.reason
    named = isinstance(inside(row, place), str)
    return None if named else f"it has no {place}; wanted the id of what it annotates"


def _keep(store: JoinStore, row: Any, name: str, file: File, number: int) -> None:
    new = RecordedRow(None, {_NAME: [row]}, {}, file.name, number)
    if (before := store.put(name, new)) is not None:
        store.replace(name, replace(before, values={_NAME: [*before.values[_NAME], row]}))


def annotated(row: Any, place: str, store: JoinStore) -> Any:
    """The row, in which each mapping of the list at `place` has its annotations in the order of their files, and no other."""
    held = inside(row, place) if isinstance(row, Mapping) else None
    for each in held if isinstance(held, list) else ():
        if isinstance(each, dict):
            found, _ = store.take(str(each.get("id")))
            each[_NAME] = [] if found is None else found.values[_NAME]
    return row
