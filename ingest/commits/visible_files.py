"""The files of a run that are shown: those on record, without steps that a later start recorded again."""

from dataclasses import dataclass

from .attempts import Limit, Limits
from .catalog import Catalog
from .entries import Segment, TokenFile
from .file_parts import steps_of, writers_of


@dataclass(frozen=True)
class VisibleFiles:
    """The part of a catalog that is shown."""

    steps: tuple[int, ...]
    """All steps on record, ascending, including steps whose every file was set aside."""
    token_files: dict[int, tuple[TokenFile, ...]]
    """step -> its token files, by path; steps ascending, only those that have any."""
    segments: tuple[Segment, ...]
    """Statistics segments with at least one visible step, by path."""
    scalars: tuple[Segment, ...]
    """Files of scalars with at least one visible step, by path."""
    limits: Limits
    """Steps at which attempts and writers stop being shown."""

    def limit(self, item: TokenFile | Segment) -> Limit | None:
        """From which step on the file is not shown; None where all of it is."""
        return self.limits.of(item.attempt, writers_of(item))

    def shown(self, item: TokenFile | Segment) -> frozenset[int]:
        """The steps of the file that are shown."""
        limit = self.limit(item)
        return steps_of(item) if limit is None else frozenset(step for step in steps_of(item) if step < limit.step)


def visible_files(catalog: Catalog) -> VisibleFiles:
    """The part of the catalog that is shown."""
    limits_alone = VisibleFiles((), {}, (), (), catalog.limits())
    by_step: dict[int, list[TokenFile]] = {}
    for file in catalog.token_files():
        if not limits_alone.limits or limits_alone.shown(file):
            by_step.setdefault(file.step, []).append(file)
    segments, scalars = (
        tuple(sorted(filter(limits_alone.shown, items), key=lambda item: item.path))
        for items in (catalog.segments(), catalog.scalars())
    )
    ordered = {step: tuple(sorted(by_step[step], key=lambda file: file.path)) for step in sorted(by_step)}
    shown = (
        (limits_alone.shown(item) for item in catalog.recorded())
        if limits_alone.limits
        else catalog.steps_of_attempts().values()
    )
    steps = set[int]().union(*shown)
    return VisibleFiles(tuple(sorted(steps)), ordered, segments, scalars, limits_alone.limits)
