"""The files that were committed from one version of a catalog to the next. A reader that follows a run plans these alone."""

from collections.abc import Collection
from dataclasses import dataclass, field

from .entries import Segment, TokenFile
from .writer_history import WriterHistory

_REMEMBERED = 64
"""Versions that are remembered."""


@dataclass
class CatalogGrowth:
    """Belongs to one catalog."""

    _versions: list[tuple[int, tuple[TokenFile | Segment, ...] | None]] = field(default_factory=list)
    """(version, files that were committed since the version before), the newest last; None if more has changed."""

    def add(self, version: int, files: tuple[TokenFile | Segment, ...] | None) -> None:
        """Takes the files that were committed since the version before; None if more has changed."""
        self._versions = [*self._versions[1 - _REMEMBERED :], (version, files)]

    def since(self, version: int, newest: int) -> list[TokenFile | Segment] | None:
        """The files between two versions, in order; None if more has changed, or if that is too long ago."""
        later = [(own, files) for own, files in self._versions if own > version]
        if [own for own, _ in later] != list(range(version + 1, newest + 1)):
            return None
        found = [files for _, files in later if files is not None]
        return [item for files in found for item in files] if len(found) == len(later) else None


def fresh_files(histories: Collection[WriterHistory]) -> tuple[TokenFile | Segment, ...] | None:
    """The files that all logs committed since the last call; None if lines changed more of what the run consists of."""
    news = [history.fresh for history in histories]
    for history in histories:
        history.fresh = []
    if None in news or any(history.takes_over for history in histories):
        return None
    return tuple(item for files in news for item in files or ())
