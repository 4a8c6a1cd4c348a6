"""The parts of a file: its steps and its writers. A merged file has several writers.

Merged files, which hold the rows of the files that they replace: `compact` writes them.
"""

from collections.abc import Container, Iterator, Mapping
from typing import NamedTuple

from .entries import Segment, TokenFile


def writers_of(item: TokenFile | Segment) -> tuple[str, ...]:
    """All writers whose rows or statistics the file holds; several for a merged file."""
    return (item.writer,) if not item.replaces else tuple(dict.fromkeys(part.writer for part in parts_by_writer(item)))


class WriterPart(NamedTuple):
    """The part of a file that comes from one writer."""

    writer: str
    policies: frozenset[str]
    """Empty for statistics."""
    steps: frozenset[int]


def parts_by_writer(item: TokenFile | Segment) -> Iterator[WriterPart]:
    """The part of each writer in the file."""
    if isinstance(item, TokenFile):
        yield from (WriterPart(writer, policies, steps_of(item)) for writer, policies in item.policies_by_writer)
    elif item.measured:
        yield from (WriterPart(part.writer, frozenset[str](), part.steps) for part in item.measured)
    else:
        yield WriterPart(item.writer, frozenset(), item.steps)


def steps_of(item: TokenFile | Segment) -> frozenset[int]:
    """The steps of the file's rows."""
    return frozenset((item.step,)) if isinstance(item, TokenFile) else item.steps


def unreplaced(files: Mapping[str, TokenFile | Segment], set_aside: Container[str]) -> Iterator[TokenFile | Segment]:
    """The files without those that a merged file replaces, as long as the merged file can be read.

    set_aside: paths of files that cannot be read. Two merged files may hold the same file: then the smaller one is left out,
    because no row may count twice.
    """
    replaced = set[str]()
    merged = (item for item in files.values() if item.replaces)
    for item in sorted(merged, key=lambda item: (-len(item.replaces), item.path)):
        origins = {origin.path for origin in item.replaces}
        if item.path in set_aside or item.path in replaced:
            continue
        if origins & replaced:
            replaced.add(item.path)
        else:
            replaced |= origins
    yield from (item for path, item in files.items() if path not in replaced)
