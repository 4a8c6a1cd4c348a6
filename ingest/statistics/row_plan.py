"""The gaps and steps that must be computed from token rows, because the statistics on record lack them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from ratioscope.layout import joint_writer
from ratioscope.record import GAPS

from ..commits.entries import TokenFile


@dataclass(frozen=True)
class RowJob:
    """Gaps to compute from the rows of these files, all of one step."""

    files: tuple[TokenFile, ...]
    gaps: frozenset[str]


@dataclass(frozen=True)
class RowPlan:
    """step -> what to compute from its rows, in two kinds."""

    per_writer: Mapping[int, RowJob]
    """Some writers hold both sides of a gap and lack statistics of it. The result is added to the statistics on record."""
    joint: Mapping[int, RowJob]
    """A gap must be computed from all files of the step. The result replaces the statistics on record.

    Reasons: different writers hold the two policies, slices or slice columns; a merged file no longer tells which rows belong to
    the writer that lacks statistics; the statistics on record count only part of the rows.
    """


GapsOfWriters = Mapping[tuple[str, int], Collection[str]]
"""(writer, step) -> gaps in the writer's statistics."""


def row_plan(files: Mapping[int, Sequence[TokenFile]], measured: GapsOfWriters) -> RowPlan:
    """The gaps to compute from rows. files: by step.

    Statistics under the pseudo-writer `joint_writer` count all rows of the step, and so stand for every writer.
    """
    per_writer, joint = dict[int, RowJob](), dict[int, RowJob]()
    missing = cache(_missing)  # most steps of a run are alike
    for step, present in files.items():
        contents = tuple(map(_content, present))
        writers = dict.fromkeys(writer for content in contents for writer, _ in content.policies_by_writer)
        together = joint_writer(sum(file.rows for file in present))
        *own, of_all = (frozenset(measured.get((writer, step), ())) for writer in (*writers, together))
        found = missing(contents, tuple(own), of_all)
        if found.gaps:
            per_writer[step] = RowJob(tuple(present[place] for place in found.holders), found.gaps)
        if found.joint:
            joint[step] = RowJob(tuple(present), found.joint)
    return RowPlan(per_writer, joint)


class _Content(NamedTuple):
    """The part of a token file's commit that decides whether its rows are needed."""

    policies_by_writer: tuple[tuple[str, frozenset[str]], ...]
    slice_columns_by_writer: tuple[tuple[str, frozenset[str]], ...]
    has_slices: bool
    unmeasured: bool


def _content(file: TokenFile) -> _Content:
    return _Content(file.policies_by_writer, file.slice_columns_by_writer, file.slices > 0, file.unmeasured)


class _Missing(NamedTuple):
    """The gaps of a step that must be computed from rows."""

    gaps: frozenset[str]
    """Gaps that single writers lack."""
    holders: tuple[int, ...]
    """Places of these writers' files."""
    joint: frozenset[str]
    """Gaps that need all files."""


def _missing(files: tuple[_Content, ...], measured: tuple[frozenset[str], ...], of_all: frozenset[str]) -> _Missing:
    """measured: the gaps in the statistics of each writer, in order. of_all: in those that stand for every writer."""
    policies = _policies(files)
    split = frozenset(gap for gap in GAPS if _is_split(gap, policies.values()))
    if any(file.has_slices for file in files):
        split |= _gaps_of(frozenset().union(*policies.values()))
    split |= _without_facts(files, policies)
    split |= _gaps_of(
        frozenset().union(*(held for file in files if file.unmeasured for _, held in file.policies_by_writer))
    )
    lacking = {writer: _gaps_of(held) - own for (writer, held), own in zip(policies.items(), measured, strict=True)}
    # rows of a merged file do not name their writer, so gaps that some of its writers lack cannot be added for one alone
    merged = (
        {writer for writer, _ in file.policies_by_writer}
        for file in files
        if len({writer for writer, _ in file.policies_by_writer}) > 1
    )
    split |= frozenset(gap for writers in merged for writer in writers for gap in lacking[writer])
    lacking = {writer: gaps - split - of_all for writer, gaps in lacking.items()}
    holders = (
        place for place, file in enumerate(files) if any(lacking[writer] for writer, _ in file.policies_by_writer)
    )
    return _Missing(frozenset().union(*lacking.values()), tuple(holders), split - of_all)


def gaps_on_record(files: Mapping[int, Sequence[TokenFile]]) -> frozenset[str]:
    """Gaps for which the rows of some step hold both sides, also where two writers recorded them."""
    of_steps = {frozenset(file.policies for file in present) for present in files.values()}  # a few, of many files
    return frozenset(gap for policies in of_steps for gap in _gaps_of(frozenset().union(*policies)))


def _policies(files: Sequence[_Content]) -> dict[str, frozenset[str]]:
    """writer -> the policies it recorded."""
    by_writer: dict[str, frozenset[str]] = {}
    for file in files:
        for writer, policies in file.policies_by_writer:
            by_writer[writer] = by_writer.get(writer, frozenset()) | policies
    return by_writer


def _without_facts(files: Sequence[_Content], policies: Mapping[str, frozenset[str]]) -> frozenset[str]:
    """Gaps whose statistics lack a slice: a slice column, such as versions, was recorded only by a writer that cannot measure
    the gap."""
    columns: dict[str, frozenset[str]] = {}
    for writer, own in (pair for file in files for pair in file.slice_columns_by_writer):
        columns[writer] = columns.get(writer, frozenset()) | own
    gaps = set[str]()
    for gap in GAPS:
        measuring = {writer for writer, sides in policies.items() if gap in _gaps_of(sides)}
        elsewhere = frozenset().union(*(own for writer, own in columns.items() if writer not in measuring))
        if any(elsewhere - columns.get(writer, frozenset()) for writer in measuring):
            gaps.add(gap)
    return frozenset(gaps)


def _gaps_of(policies: frozenset[str]) -> frozenset[str]:
    return frozenset(gap for gap, sides in GAPS.items() if policies >= set(sides))


def _is_split(gap: str, policies: Collection[frozenset[str]]) -> bool:
    """True if one writer holds only the earlier side and another only the later one. policies: of each writer."""
    earlier, later = GAPS[gap]
    has_earlier_alone = any(earlier in own and later not in own for own in policies)
    return has_earlier_alone and any(later in own and earlier not in own for own in policies)
