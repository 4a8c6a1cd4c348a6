"""Merged files, which hold the rows of the files that they replace: `compact` writes them."""

from collections.abc import Container, Iterator, Mapping

from .entries import Segment, TokenFile


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
